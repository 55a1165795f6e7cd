"""YAML files that nobody vouches for: read as Hydra reads them, in bounded time and memory.

Knows YAML, OmegaConf and folders of configs. Must not know engines, or what a config means.
"""
