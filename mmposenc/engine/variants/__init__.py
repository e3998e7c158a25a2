"""Changes of a config: other encodings (encodings.py names them, applying.py puts them in), or
other sizes of test images (sizes.py)."""
from mmposenc.dependencies import require

require(__name__)
