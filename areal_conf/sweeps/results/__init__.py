"""What became of a sweep: what its jobs measured, how far off the estimates were, what is next.

Knows the files that jobs and AReaL leave behind. Must not start a job or print.
"""
