"""Heads of detectors whose losses do not depend on how images are spread over processes."""
from ..compat.openmmlab import require
from ..names import lazy_room

require(__name__)
__all__, __getattr__ = lazy_room(__name__)
