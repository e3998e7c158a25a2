"""results.json and what is made from it: report.html and results.csv. Start at
results.py.
"""
