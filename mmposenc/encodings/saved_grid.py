"""Saves the grid beside a table whose number of rows does not show it."""
from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn


class SavesGrid(nn.Module):
    """A table of the cells of a grid, or of the offsets in it.

    The grid (H, W) is the attribute ``sides``, and a buffer of whole numbers, so that a state dict
    has it: tables of 2 x 8, 8 x 2 and 4 x 4 cells may have the same shape. Files of releases do not
    have it, and a table of the same shape is loaded without it.
    """

    #: The name of the buffer.
    grid_name: str
    sides: tuple[int, int]

    def _set_sides(self, sides: tuple[int, int], device: torch.device | None = None) -> None:
        self.sides = sides
        # A model that is built in inference mode may be trained later.
        with torch.inference_mode(False):
            self.register_buffer(self.grid_name, torch.tensor(sides, device=device))

    def _apply(self, fn: Any, recurse: bool = True) -> Any:
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        # The memory that ``to_empty`` gives holds no numbers yet.
        self._set_sides(self.sides, self.get_buffer(self.grid_name).device)
        return self

    def _load_from_state_dict(self, state_dict: dict[str, Tensor], prefix: str, metadata: object,
                              strict: bool, missing_keys: list[str], unexpected_keys: list[str],
                              error_msgs: list[str]) -> None:
        key = prefix + self.grid_name
        grid = state_dict.setdefault(key, torch.tensor(self.sides))
        if tuple(grid.tolist()) != self.sides:
            error_msgs.append(f'{key} is {tuple(grid.tolist())} in the file, {self.sides} here')
            # The table is not loaded: a caller that only logs the error must not get rows at wrong
            # cells.
            return
        super()._load_from_state_dict(state_dict, prefix, metadata, strict, missing_keys,
                                      unexpected_keys, error_msgs)
