"""Any position encoding, in any backbone or DETR encoder, by one line of config.

Importing this package imports neither torch nor OpenMMLab: it only arranges that mmcv and
torchvision import when they come without their compiled operators (see :mod:`mmposenc.operators`).
So it comes before them: ``import mmposenc`` first, or ``mmposenc run SCRIPT``.
"""
from . import operators as compat

__version__ = "0.1.0"


def __getattr__(name: str) -> object:
    """``mmposenc.PEG``, ``mmposenc.PVT``: every class as configs call it."""
    if not name[:1].isupper():
        raise AttributeError(f'module {__name__!r} has no attribute {name!r}')
    from .names import class_of_name
    return class_of_name(name)


compat.prepare()
