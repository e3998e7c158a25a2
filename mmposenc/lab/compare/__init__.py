"""Which encoding for my data: what is compared, how it is run, and what comes of it."""
