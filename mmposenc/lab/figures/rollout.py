"""Attention rollout: what the tokens of the last layer are made of, layers multiplied."""
from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import numpy as np
from torch import nn

from .layouts import layout_of
from .maps import Array
from .subjects import NothingToShow
from .watching import AttentionCall, watch_attention

#: The share of a layer that passes it by, in its residual connection.
RESIDUAL = 0.5


@dataclass
class Rollout:
    """What was gathered of one pass.

    matrix: (P + L, P + L), the share of each token of the input (columns) in each of the output
    (rows); None before a layer ran. hw_shape: (H, W). num_prefix_tokens: P. names: of the layers.
    """

    matrix: Array | None = None
    hw_shape: tuple[int, int] = (0, 0)
    num_prefix_tokens: int = 0
    names: list[str] = field(default_factory=list)


def rollout_step(before: Array | None, weights: Array) -> Array:
    """One layer more (Abnar and Zuidema, ACL 2020, Sec. 3): A = .5 I + .5 mean of the heads, rows
    normalised, times what came before.

    Args:
        before: (L, L) of the layers below; None for the first.
        weights: (heads, L, L) after the softmax.

    Returns:
        (L, L); rows sum to 1.
    """
    mixed = (RESIDUAL * np.eye(weights.shape[-1])
             + (1 - RESIDUAL) * weights.mean(0, dtype=np.float64))
    mixed /= mixed.sum(-1, keepdims=True)
    step: Array = mixed if before is None else mixed @ before
    return step


@contextmanager
def record_rollout(model: nn.Module) -> Iterator[Rollout]:
    """Multiply the attention of every layer inside ``model`` while it runs, of the first image.

    What other layers do (feed-forward networks, token encodings that mix tokens) is left out, as in
    the paper.

    Yields:
        What is filled in as layers run.

    Raises:
        ValueError: while the model runs, for layers whose queries and keys are not all tokens of
            one grid (windows, reduced keys, stages), between which weights have no product.
    """
    found = Rollout()

    def note(call: AttentionCall) -> None:
        layout = layout_of(call.module, call.given, (0.0, 0.0), call.placed)
        if layout.window is not None or layout.key.hw != layout.grid.hw:
            raise NothingToShow(f"figure='rollout': {call.name} attends in windows or to "
                                f'reduced keys; layers in which all tokens meet are required. '
                                f"figure='overlay' shows one such layer")
        if found.names and found.hw_shape != layout.grid.hw:
            raise NothingToShow(
                f"figure='rollout': {call.name} runs on {layout.grid.hw} cells and "
                f'{found.names[-1]} on {found.hw_shape}; layers of one grid are required. '
                f"figure='overlay' shows one of them")
        found.matrix = rollout_step(found.matrix, call.weights[0].float().cpu().numpy())
        found.hw_shape, found.num_prefix_tokens = layout.grid.hw, call.num_prefix_tokens
        found.names.append(call.name)

    with watch_attention(model, note):
        yield found
