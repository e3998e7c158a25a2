"""Data preprocessors that tell the backbone how far each image of a padded batch reaches."""
from ..compat.openmmlab import require
from ..names import lazy_room

require(__name__)
__all__, __getattr__ = lazy_room(__name__)
