"""The rules of a whole experiment, as tables of functions.

Knows the resolved experiment and what AReaL accepts. Must not change what it reads, nor print.
"""
