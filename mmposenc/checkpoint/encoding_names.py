"""Which weights of a state dict are those of position encodings."""
from __future__ import annotations

import re
from collections.abc import Container, Iterable

#: In place of ``strict=True``: all but encodings must fit. Those of the file that the model has not
#: are left out, and those of the model that the file has not are new.
BUT_ENCODINGS = 'but encodings'

#: Ends of the names of grids that stand beside tables
#: (:class:`mmposenc.encodings.saved_grid.SavesGrid`).
GRIDS = ('.grid_shape', '.window_size')

#: The two arguments of a backbone that are encodings, of tokens and of attention.
SLOTS = ('pos_encoding', 'rel_pos_encoding')
_ENCODING = re.compile(r'(?:^|\.)(?:\w*pos_encodings|context_pools|(rel_pos_encoding))\.'
                       r'(?:at\.\w+\.\d+\.|encodings\.\d+\.)?(.+)')


def is_encoding(name: str, slots: Container[str] = SLOTS) -> bool:
    """Whether a weight is one of a position encoding, by the name it has in the models here.

    Args:
        name: of the weight.
        slots: of :data:`SLOTS`, those that count.
    """
    match = _ENCODING.search(name)
    return match is not None and SLOTS[match[1] is not None] in slots


def replaced_slots(slots: Iterable[str], model: Iterable[str], file: Iterable[str]) -> list[str]:
    """Of some of :data:`SLOTS` those for which a file has encodings of another kind than a model.

    Args:
        slots: of :data:`SLOTS`.
        model, file: names of all weights.
    """
    def weights(names: Iterable[str], slot: str) -> set[str]:
        return {match[2] for name in names
                if is_encoding(name, (slot,)) and (match := _ENCODING.search(name))}
    return [slot for slot in slots if not weights(model, slot) & weights(file, slot)]
