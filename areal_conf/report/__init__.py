"""What people see of a plan or a backend string: tables, sentences, pictures.

Knows finished plans and terminals. Must not decide anything.
"""
