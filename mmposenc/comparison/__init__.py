"""Encodings compared on a data set: what is compared, the runs, statistics and the report."""
