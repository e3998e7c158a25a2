"""Plans and times the runs of a study, lets processes or jobs carry them out, and records each.
Start at planning.py."""
