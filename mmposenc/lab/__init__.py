"""Questions about position encodings, on top of everything else.

    compare/    which encoding for my data: trains and tests several, and writes a report
    diagnose/   what a model knows of positions, measured without training
    figures/    pictures of what encodings do; arrays and figures need only torch

Each is a command of the same name, in mmposenc.commands.
"""
