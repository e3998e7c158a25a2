"""Encodings in models of other libraries, one file for each; a file is imported on first use."""
