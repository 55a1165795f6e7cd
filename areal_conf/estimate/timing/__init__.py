"""Which layout is faster: the relative time of a training step, part by part.

Knows layouts, shapes of models and speeds of cards; must not know configs or plans.
"""
