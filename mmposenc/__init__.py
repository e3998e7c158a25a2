"""Any position encoding, in any backbone or DETR encoder, by one line of config.

Importing this package imports neither torch nor OpenMMLab: it only arranges that mmcv and
torchvision import when they come without their compiled operators (see :mod:`mmposenc.compat`).
So it comes before them: ``import mmposenc`` first, or ``mmposenc run SCRIPT``.
"""
from . import compat

__version__ = "0.1.0"

compat.prepare()
