"""Position encodings as torch modules, one a file; nothing of OpenMMLab is imported here."""
from .absolute import LearnedPositionEmbedding, SinCosPositionEncoding
from .base import RelativeEncoding, TokenEncoding
from .build import build_encoding
from .peg import PEG
from .placement import PlacedEncodings

#: Names registered in scope ``mmposenc``.
ENCODINGS: tuple[str, ...] = (
    'PEG',
    'LearnedPositionEmbedding',
    'SinCosPositionEncoding',
)

__all__ = [
    'ENCODINGS',
    'LearnedPositionEmbedding',
    'PEG',
    'PlacedEncodings',
    'RelativeEncoding',
    'SinCosPositionEncoding',
    'TokenEncoding',
    'build_encoding',
]
