"""Colours of categories: maps in which neighbours that differ are seen to differ."""
from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from .maps import Array

#: Okabe and Ito's colours for all kinds of colour vision, grey in place of black, which would hide
#: what is written on it.
PALETTE = ('#E69F00', '#56B4E9', '#009E73', '#F0E442', '#0072B2', '#D55E00', '#CC79A7', '#999999')


def neighbours(maps: Sequence[Array]) -> dict[int, set[int]]:
    """For every category the others that touch it in some map, corners included."""
    found: dict[int, set[int]] = {int(value): set() for each in maps for value in np.unique(each)}
    for each in maps:
        for one, other in ((each[1:], each[:-1]), (each[:, 1:], each[:, :-1]),
                           (each[1:, 1:], each[:-1, :-1]), (each[1:, :-1], each[:-1, 1:])):
            pairs = np.unique(np.stack((one.ravel(), other.ravel())), axis=1).T
            for a, b in pairs.tolist():
                if a != b:
                    found[a].add(b)
                    found[b].add(a)
    return found


def color_categories(maps: Sequence[Array]) -> list[Array]:
    """Numbers in :data:`PALETTE` for the cells of maps of whole numbers, one colour a category.

    Categories that touch get different colours, the least used ones first; those with most
    neighbours choose first. Where a category touches as many others as there are colours, it
    shares one with a neighbour.

    Args:
        maps: (H, W) each, in the same categories.

    Returns:
        For each map (H, W) whole numbers below ``len(PALETTE)``.
    """
    touching = neighbours(maps)
    used = [0] * len(PALETTE)
    chosen: dict[int, int] = {}
    for category in sorted(touching, key=lambda each: (-len(touching[each]), each)):
        taken = {chosen[other] for other in touching[category] if other in chosen}
        free = [color for color in range(len(PALETTE)) if color not in taken]
        color = min(free or range(len(PALETTE)), key=lambda each: (used[each], each))
        used[color] += 1
        chosen[category] = color
    lookup = np.vectorize(chosen.__getitem__, otypes=[int])
    return [lookup(each) for each in maps]
