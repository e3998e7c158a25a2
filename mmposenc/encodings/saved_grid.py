"""Saves the grid beside a table whose number of rows does not show it."""
from __future__ import annotations

import torch
from torch import Tensor, nn


class SavesGrid(nn.Module):
    """A table of the cells of a grid, or of the offsets in it.

    In a state dict the grid (H, W) stands beside the table, under the name of the attribute that
    has it, where it is no square: tables of 2 x 8 and of 8 x 2 cells have the same shape. A table
    without it is of a square.
    """

    #: The name of the attribute that holds (H, W).
    grid_name: str

    def _save_to_state_dict(self, destination: dict[str, object], prefix: str, keep_vars: bool
                            ) -> None:
        super()._save_to_state_dict(destination, prefix, keep_vars)
        height, width = getattr(self, self.grid_name)
        if height != width:
            destination[prefix + self.grid_name] = torch.tensor((height, width))

    def _load_from_state_dict(self, state_dict: dict[str, Tensor], prefix: str, metadata: object,
                              strict: bool, missing_keys: list[str], unexpected_keys: list[str],
                              error_msgs: list[str]) -> None:
        key, current = prefix + self.grid_name, tuple(getattr(self, self.grid_name))
        grid: Tensor | None = state_dict.pop(key, None)
        if grid is None and current[0] != current[1]:
            missing_keys.append(key)
        elif grid is not None and tuple(grid.tolist()) != current:
            error_msgs.append(f'{key} is {tuple(grid.tolist())} in the file, {current} here')
            # The table is not loaded: a caller that only logs the error must not get rows at wrong
            # cells.
            return
        super()._load_from_state_dict(state_dict, prefix, metadata, strict, missing_keys,
                                      unexpected_keys, error_msgs)
