"""Clusters of their own for tests: a Slurm and a Ray cluster on this machine."""
