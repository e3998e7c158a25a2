"""Any position encoding, in any backbone or DETR encoder, by two lines of config.

Importing this package imports neither torch nor OpenMMLab. It installs an import hook, so that mmcv
and torchvision can be imported without their compiled operators (see :mod:`mmposenc.compat`).
Import it before them: ``import mmposenc`` first, or start a script by ``mmposenc run SCRIPT``.
"""
from typing import Any

from . import compat

__version__ = "0.1.0"


#: Functions of the package, and the module that defines each.
_FUNCTIONS = {'load': 'engine.apps.prediction', 'predict': 'engine.apps.prediction'}


def __getattr__(name: str) -> Any:
    """``mmposenc.PEG``, ``mmposenc.PVT``: every class as configs call it; ``mmposenc.load``,
    ``mmposenc.predict``."""
    if name not in _FUNCTIONS and not name[:1].isupper():
        raise AttributeError(f'module {__name__!r} has no attribute {name!r}')
    from .class_index import class_of_name, load_own_class
    return load_own_class(_FUNCTIONS[name], name) if name in _FUNCTIONS else class_of_name(name)


def __dir__() -> list[str]:
    from .class_index import CLASSES
    from .encodings import ENCODINGS
    classes = {name for table in CLASSES.values() for name in table}
    return sorted({*globals(), *_FUNCTIONS, *classes, *ENCODINGS})


compat.prepare()
