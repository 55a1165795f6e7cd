"""The rules of a whole experiment, as tables of functions.

Each rule reads the resolved experiment and yields findings. Must not change what it reads.
"""
