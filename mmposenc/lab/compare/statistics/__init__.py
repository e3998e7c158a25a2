"""What the numbers of a study say: means, differences, a recommendation. Pure functions.
"""
