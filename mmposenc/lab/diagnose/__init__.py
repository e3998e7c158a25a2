"""What a model knows of places, measured without training: shifts, probes, attention, sizes,
padding and similarity."""
from .measure import Measure, draw_measure, write_figures
from .table import diagnose

__all__ = ['Measure', 'diagnose', 'draw_measure', 'write_figures']
