"""Trainings: launch.py is where to start; then runner.py, loops.py and checkpoints.py. Hooks have a
file each.
"""
from mmposenc.dependencies import require

require(__name__)
