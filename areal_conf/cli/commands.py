"""The table of commands."""

from __future__ import annotations

COMMANDS: dict[str, tuple[str, str]] = {
    "init": ("init", "write a first config, with a layout for your model and cluster"),
    "plan": ("plan", "plan an experiment: engines, GPUs, and everything that is wrong"),
    "explain": ("explain", "say what a backend string means, or what is wrong with it"),
    "layouts": ("layouts", "list every layout that a pattern such as fsdp:d*t*@8 means"),
    "suggest": ("suggest", "say which layouts to try first for an experiment, and why"),
    "check": ("check", "lint YAML files: what is wrong, at its line and column"),
    "results": ("results", "what a sweep found out: best first, estimate beside measurement"),
    "run": ("run", "check the plan of an AReaL command line, then become that command"),
    "launch": ("launch", "launch one job by AReaL's launcher, and wait for its ranks"),
    "export": ("export", "write a composed config as AReaL itself takes it"),
    "engine-args": ("engine_args", "arguments of an engine or framework for a backend string"),
    "migrate": ("migrate", "move configs from allocation_mode to per-engine backends"),
    "schema": ("schema", "a JSON Schema of AReaL-style YAML, for editors"),
    "completion": ("completion", "a script that completes areal-conf in bash, zsh or fish"),
}
"""Each command: the module that holds it (``add_arguments`` and ``run``), and what it does."""
