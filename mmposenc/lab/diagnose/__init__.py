"""What a model knows of places, measured without training: shifts, probes, attention, sizes,
padding and similarity.

Start at ``diagnose`` in table.py, which calls what measures (changes.py, probe.py, attention.py).
measure.py says what a measure is and draws it; features.py notes the maps behind a model's blocks.
With OpenMMLab, config_models.py does it for the model of a config.
"""
from .measure import Measure, draw_measure, write_figures
from .table import diagnose

__all__ = ['Measure', 'diagnose', 'draw_measure', 'write_figures']
