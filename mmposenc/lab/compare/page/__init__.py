"""results.json and what is made from it: report.html, results.md and results.csv. Start at
results.py.
"""
