"""Encodings in models of other libraries, one library a file; nothing is imported before it is
asked for."""
