"""Position encodings as torch modules, one a file; nothing of OpenMMLab is imported here."""
from .base import RelativeEncoding, TokenEncoding
from .build import build_encoding

#: Names registered in scope ``mmposenc``.
ENCODINGS: tuple[str, ...] = ()

__all__ = ['ENCODINGS', 'RelativeEncoding', 'TokenEncoding', 'build_encoding', *ENCODINGS]
