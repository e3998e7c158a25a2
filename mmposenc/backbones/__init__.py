"""Vision transformers that take any position encoding."""
from ..compat.openmmlab import require

require()

from .checkpoints import load_pretrained  # noqa: E402
from .pvt import PVT  # noqa: E402

__all__ = ['PVT', 'load_pretrained']
