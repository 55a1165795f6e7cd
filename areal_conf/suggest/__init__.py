"""Which layout to try first: layouts of one engine in order, and whole experiments to paste.

Knows plans, estimates and what a cluster has; must not know the command line or how a report looks.
"""
