"""Answers which encoding fits a user's data: what is compared, how it is run, and what the results
say."""
