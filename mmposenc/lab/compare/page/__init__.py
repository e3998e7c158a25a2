"""Collects what is known of a study, and writes report.html, results.csv and best.py. Start at
results.py."""
