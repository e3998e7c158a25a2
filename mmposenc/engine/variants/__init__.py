"""A config with other encodings (encodings.py names them, applying.py puts them in) or tested at
other sizes (sizes.py).
"""
from mmposenc.dependencies import require

require(__name__)
