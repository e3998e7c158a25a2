"""Answers questions about position encodings, on top of everything else.

    compare/    which encoding for my data: trains and tests several, and writes a report
    inspect/    where encodings of a model sit, what they cost, what they do

Each is a command of the same name, in mmposenc.commands.
"""
