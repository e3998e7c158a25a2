"""Buffers of numbers that a module can compute again at any time."""
from __future__ import annotations

from abc import abstractmethod
from typing import Any

import torch
from torch import Tensor, nn


class Constants(nn.Module):
    """A base class of modules with fixed numbers in buffers, which are not saved.

    They are made again after all that loses or rounds them: ``to_empty``, a conversion to half
    precision (they are at least float32), and whenever weights are loaded; on the CPU if these are
    assigned to a model on the meta device.
    """

    @abstractmethod
    def constants(self) -> dict[str, object]:
        """The numbers, or nested lists of them, by name of the buffer."""

    def register_constants(self, device: torch.device | None = None,
                           dtype: torch.dtype | None = None) -> None:
        """Create the buffers; by default on the default device and in the default dtype, at least
        float32."""
        dtype = dtype or torch.promote_types(torch.get_default_dtype(), torch.float32)
        # A model that is built in inference mode may be trained later.
        with torch.inference_mode(False):
            for name, numbers in self.constants().items():
                self.register_buffer(name, torch.tensor(
                    numbers, dtype=dtype, device=device), persistent=False)

    def _apply(self, fn: Any, recurse: bool = True) -> Any:
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        for like in self._first_constant():
            self.register_constants(like.device, torch.promote_types(like.dtype, torch.float32))
        return self

    def _first_constant(self) -> list[Tensor]:
        """One of the buffers, or nothing if there are none."""
        return [self.get_buffer(name) for name in self.constants()][:1]

    def _load_from_state_dict(self, state_dict: Any, prefix: str, local_metadata: Any,
                              *args: object) -> None:
        super()._load_from_state_dict(state_dict, prefix, local_metadata, *args)
        for like in self._first_constant():
            gets_memory = like.is_meta and local_metadata.get('assign_to_params_buffers')
            self.register_constants(torch.device('cpu') if gets_memory else like.device, like.dtype)


__all__ = ['Constants']
