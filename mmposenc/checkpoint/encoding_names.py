"""Which weights of a state dict are those of position encodings."""
from __future__ import annotations

import re

#: In place of ``strict=True``: all but encodings must fit. Those of the file that the model has not
#: are left out, and those of the model that the file has not are new.
BUT_ENCODINGS = 'but encodings'

#: Ends of the names of grids that stand beside tables
#: (:class:`mmposenc.encodings.saved_grid.SavesGrid`).
GRIDS = ('.grid_shape', '.window_size')

_ENCODING = re.compile(r'(^|\.)(\w*pos_encodings|rel_pos_encoding|context_pools)\.')


def is_encoding(name: str) -> bool:
    """Whether a weight is one of a position encoding, by the name it has in the models here."""
    return _ENCODING.search(name) is not None
