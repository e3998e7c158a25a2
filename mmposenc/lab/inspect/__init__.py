"""What the position encodings of a model are and do: where they sit, what they cost, pictures of
them, and measures of a trained model.

Start at ``inspect_config`` in report.py, which the command ``mmposenc inspect`` calls. counts.py
counts, figures.py draws, probes.py measures; they run a model through recording.py, and draw with
drawing.py. Where encodings sit is in mmposenc.backbones.structure, which torch is enough for.
"""
