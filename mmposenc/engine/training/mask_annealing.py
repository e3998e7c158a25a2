"""Reduces the masked attention of EoMT in the course of a training."""
from __future__ import annotations

from collections.abc import Sequence

import torch
from mmengine.hooks import Hook
from mmengine.runner import Runner

from mmposenc.backbones import EoMT

from .distributed import unwrapped_model


class MaskAnnealingHook(Hook):
    """Lowers the probability of masked attention in each query block of an EoMT from 1 to 0
    (Kerssies et al., CVPR 2025, Sec. 3.3), as (1 - progress) ** ``power``. As in the release, each
    block takes a sixth of the training, the first after one sixth, the last before the last one,
    and the others in equal steps between.

    Args:
        power: the exponent.
        starts, ends: instead, the iterations at which each block begins and is done.

    Raises:
        ValueError: other lists; when the training starts: the model has no EoMT, or another number
            of query blocks.
    """

    priority = 'ABOVE_NORMAL'  # It runs before weights are averaged and a checkpoint is written.

    def __init__(self, power: float = 0.9, starts: Sequence[int] | None = None,
                 ends: Sequence[int] | None = None) -> None:
        self.power, self.starts, self.ends = power, starts, ends
        if len(starts or ()) != len(ends or ()) or not all(
                0 <= start < end for start, end in zip(starts or (), ends or (), strict=True)):
            raise ValueError(f'starts={starts} and ends={ends}: one iteration for each query block '
                             'is required, and each must start before it ends')

    def before_train(self, runner: Runner) -> None:
        """Check the model, and set the probabilities of the first iteration, also if the training
        is resumed."""
        model = next((each for each in unwrapped_model(runner.model).modules()
                      if isinstance(each, EoMT)), None)
        if model is None:
            raise ValueError('MaskAnnealingHook: the model has no mmposenc.EoMT; leave the hook '
                             'out')
        self._mask_probs = model.predictor.mask_probs
        if self.starts is not None and len(self.starts) != len(self._mask_probs):
            raise ValueError(f'MaskAnnealingHook: starts={self.starts} are not those of '
                             f'query_blocks={len(self._mask_probs)}')
        self._set_probabilities(runner, runner.iter)

    def after_train_iter(self, runner: Runner, batch_idx: int, data_batch: object = None,
                         outputs: object = None) -> None:
        """Set the probabilities of the next iteration."""
        self._set_probabilities(runner, runner.iter + 1)

    def probabilities(self, iteration: int, max_iters: int, count: int) -> list[float]:
        """The probability of each of ``count`` query blocks at an iteration out of ``max_iters``.
        """
        starts: Sequence[float] = self.starts or [
            max_iters * (1 + 3 * block / max(count - 1, 1)) / 6 for block in range(count)]
        ends = self.ends or [start + max_iters / 6 for start in starts]
        return [float(iteration < first) if not first <= iteration < last
                else (1 - (iteration - first) / (last - first)) ** self.power
                for first, last in zip(starts, ends, strict=True)]

    def _set_probabilities(self, runner: Runner, iteration: int) -> None:
        self._mask_probs.copy_(torch.tensor(
            self.probabilities(iteration, runner.max_iters, len(self._mask_probs))))
