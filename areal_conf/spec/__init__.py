"""The language of backend strings: grammar, the table of backends, allocations.

Knows strings and sizes. Must not know a config, a framework or a cluster.
"""
