"""What is known of a study, and what is made of it: report.html, results.csv and best.py. Start at
results.py.
"""
