"""The package as it is installed: from the tree, editable, from a wheel, and from an sdist.

Each in a virtual environment of its own that has the dependencies of this one, and looked at from
another directory. ``pip`` builds in isolation, as it does for everybody.
"""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
import tarfile
import venv
import zipfile
from dataclasses import dataclass
from pathlib import Path

import pytest
from hydra_app import HYDRA_MAIN, App
from paths import ROOT

pytestmark = pytest.mark.packaging

LOOK = """
from importlib.metadata import entry_points, version
from pathlib import Path
import areal_conf, hydra_plugins
from hydra.core.plugins import Plugins

home = Path(areal_conf.__file__).parent
assert (home / "py.typed").is_file()
assert (home / "conf/areal/layout/2x8.yaml").is_file()
assert (home / "conf/hydra/callbacks/areal_plan.yaml").is_file()
assert any((Path(p) / "areal_conf/py.typed").is_file() for p in hydra_plugins.__path__)
names = {p.__name__ for p in Plugins.instance().discover()}
assert {"ArealSearchPath", "ArealConfigSource"} <= names, names
assert version("areal-conf") == areal_conf.__version__
assert entry_points(group="console_scripts")["areal-conf"].value == "areal_conf.cli:main"
print(home)
"""


def checked(*command: str | Path, cwd: Path) -> str:
    env = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "PYTHONHOME")}
    env["PIP_DISABLE_PIP_VERSION_CHECK"] = "1"
    done = subprocess.run(list(map(str, command)), cwd=cwd, env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@dataclass
class Environment:
    """A virtual environment with the dependencies of this one, and nothing of the package."""

    directory: Path

    @classmethod
    def create(cls, directory: Path) -> Environment:
        venv.create(directory, with_pip=False)
        site = next(directory.glob("lib/python*/site-packages"))
        # A path line of a .pth file is taken as it is: an editable install there stays unseen.
        (site / "dependencies.pth").write_text(sysconfig.get_path("purelib"), encoding="utf-8")
        return cls(directory)

    @property
    def python(self) -> Path:
        return self.directory / "bin" / "python"

    def pip_install(self, *arguments: str) -> None:
        pip = (sys.executable, "-m", "pip", "--python", self.python)
        checked(*pip, "install", "--quiet", "--no-deps", *arguments, cwd=ROOT)


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with an sdist, and the wheel that pip builds from that sdist."""
    out = tmp_path_factory.mktemp("dist")
    tools = out / "tools"
    pip = (sys.executable, "-m", "pip")
    checked(*pip, "install", "--quiet", "--target", tools, "hatchling", cwd=out)
    build = (
        f"import sys; sys.path.insert(0, {str(tools)!r}); from hatchling.build import build_sdist"
    )
    checked(sys.executable, "-c", f"{build}; build_sdist({str(out)!r})", cwd=ROOT)
    (sdist,) = out.glob("*.tar.gz")
    checked(*pip, "wheel", "--quiet", "--no-deps", "--wheel-dir", out, sdist, cwd=out)
    return out


@pytest.mark.parametrize("how", ["plain", "editable", "wheel of the sdist"])
def test_installed(how: str, tmp_path: Path, built: Path) -> None:
    environment = Environment.create(tmp_path / "venv")
    arguments = {
        "plain": ["."],
        "editable": ["--editable", "."],
        "wheel of the sdist": [str(*built.glob("*.whl"))],
    }
    environment.pip_install(*arguments[how])
    home = checked(environment.python, "-c", LOOK, cwd=tmp_path).strip()
    assert Path(home).is_relative_to(ROOT if how == "editable" else tmp_path)
    command = environment.directory / "bin" / "areal-conf"
    assert "16 of 16 GPUs" in checked(command, "plan", "areal/layout=2x8", cwd=tmp_path)
    app = App.create(tmp_path / "app", HYDRA_MAIN)
    out = checked(environment.python, "app.py", "+areal/layout=2x8", cwd=app.directory)
    assert "fsdp:d4t2" in out


def test_wheel_of_the_tree_is_that_of_the_sdist(tmp_path: Path, built: Path) -> None:
    pip = (sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps")
    checked(*pip, "--wheel-dir", tmp_path, ROOT, cwd=tmp_path)
    names = [zipfile.ZipFile(next(d.glob("*.whl"))).namelist() for d in (tmp_path, built)]
    assert sorted(names[0]) == sorted(names[1])
    assert {name.split("/")[0] for name in names[0] if "dist-info" not in name} == {
        "areal_conf",
        "hydra_plugins",
    }
    assert not [
        name for name in names[0] if "__pycache__" in name or "hydra_plugins/__init__" in name
    ]
    assert any(name.endswith("LICENSE") for name in names[0])


def test_sdist_holds_what_the_tests_need(built: Path) -> None:
    with tarfile.open(next(built.glob("*.tar.gz"))) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    wanted = {"pyproject.toml", "README.md", "CHANGELOG.md", "LICENSE", "tests/run.sh"}
    assert wanted | {"areal_conf/conf/areal/layout/2x8.yaml"} <= names
    assert not [
        name for name in names if name.startswith((".venvs", ".git/", "areal_conf/conf/conf"))
    ]
