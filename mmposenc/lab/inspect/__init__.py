"""What the position encodings of a model are and do: where they sit, what they cost, and pictures
of them.

Start at ``inspect_config`` in report.py, which the command ``mmposenc inspect`` calls. counts.py
counts and figures.py draws; it runs a model through recording.py, and draws with drawing.py. Where
encodings sit is in mmposenc.backbones.encodings_of_model, which torch is enough for.
"""
