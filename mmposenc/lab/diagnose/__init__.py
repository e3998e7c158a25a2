"""Measures how a model depends on position, without training: shifts, probes, attention, image
sizes, padding and similarity of positions.

Start at ``diagnose`` in table.py. It calls the measures in changes.py, probe.py and attention.py.
measure.py defines and draws a measure; features.py records the maps after a model's blocks;
config_models.py (with OpenMMLab) measures the model of a config.
"""
from .measure import Measure, draw_measure, write_figures
from .table import diagnose

__all__ = ['Measure', 'diagnose', 'draw_measure', 'write_figures']
