"""Tells from their names which weights of a state dict belong to position encodings."""
from __future__ import annotations

import re
from collections.abc import Container, Iterable

#: A value in place of ``strict=True``: everything except encodings must fit. Encodings that only
#: the file has are left out, and encodings that only the model has are new.
BUT_ENCODINGS = 'but encodings'

#: How the names end under which grids are stored beside tables
#: (:class:`mmposenc.encodings.saved_grid.SavesGrid`).
GRIDS = ('.grid_shape', '.window_size')

#: The two arguments of a backbone that are encodings, of tokens and of attention.
SLOTS = ('pos_encoding', 'rel_pos_encoding')
_ENCODING = re.compile(r'(?:^|\.)(?:\w*pos_encodings|context_pools|(rel_pos_encoding))\.'
                       r'(?:at\.\w+\.\d+\.|encodings\.\d+\.)?(.+)')


def is_encoding_weight(name: str, slots: Container[str] = SLOTS) -> bool:
    """Whether a weight is one of a position encoding, by the name it has in the models here.

    Args:
        name: the name of the weight.
        slots: some of :data:`SLOTS`, those that count.
    """
    match = _ENCODING.search(name)
    return match is not None and SLOTS[match[1] is not None] in slots


def replaced_slots(slots: Iterable[str], model: Iterable[str], file: Iterable[str]) -> list[str]:
    """Which of these :data:`SLOTS` have encodings of another kind in a file than in a model.

    Args:
        slots: some of :data:`SLOTS`.
        model, file: names of all weights.
    """
    def weights(names: Iterable[str], slot: str) -> set[str]:
        return {match[2] for name in names
                if is_encoding_weight(name, (slot,)) and (match := _ENCODING.search(name))}
    return [slot for slot in slots if not weights(model, slot) & weights(file, slot)]
