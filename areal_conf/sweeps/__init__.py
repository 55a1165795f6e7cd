"""Many jobs: axes, patterns, pruning, names, and what each job asks its cluster for.

Knows Hydra's sweeps. Must not know the command line or AReaL's launchers.
"""
