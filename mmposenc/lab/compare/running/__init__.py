"""Plans the runs of a study, lets processes or jobs carry them out, records each, and measures what
models cost. Start at planning.py."""
