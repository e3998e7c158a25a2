"""The runs of a study: planned and timed, carried out by processes or jobs, each recorded. Start at
planning.py.
"""
