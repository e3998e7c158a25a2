"""Attention with terms: what is added, how a piece of it is written, and the driver of pieces."""
