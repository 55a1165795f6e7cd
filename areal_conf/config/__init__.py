"""What a composed config says: its engines, overrides, structured configs, secrets.

Knows Hydra and OmegaConf, and reads what a user wrote. Must not judge a layout or place a GPU.
"""
