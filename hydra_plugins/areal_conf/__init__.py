"""Hydra plugins of areal-conf.

Every module here without a leading underscore is imported at the start of every Hydra app, so that
each holds thin classes only: what they do is imported where it is done.
"""
