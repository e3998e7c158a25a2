"""Position encodings as torch modules, one a file; nothing of OpenMMLab is imported here."""
from .absolute import LearnedPositionEmbedding, SinCosPositionEncoding
from .base import RelativeEncoding, TokenEncoding, position_tables
from .build import build_encoding
from .irpe import IRPE
from .peg import PEG
from .placement import PlacedEncodings

#: Names registered in scope ``mmposenc``.
ENCODINGS: tuple[str, ...] = (
    'PEG',
    'LearnedPositionEmbedding',
    'SinCosPositionEncoding',
    'IRPE',
)

__all__ = [
    'ENCODINGS',
    'IRPE',
    'LearnedPositionEmbedding',
    'PEG',
    'PlacedEncodings',
    'RelativeEncoding',
    'SinCosPositionEncoding',
    'TokenEncoding',
    'build_encoding',
    'position_tables',
]
