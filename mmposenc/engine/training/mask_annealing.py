"""Reduces the masked attention of EoMT in the course of a training."""
from __future__ import annotations

import operator
from collections.abc import Sequence

import torch
from mmengine.hooks import Hook
from mmengine.runner import Runner

from mmposenc.backbones import EoMT

from .processes import unwrapped_model


class MaskAnnealingHook(Hook):
    """Lowers the probability of masked attention in each query block of an EoMT from 1 to 0
    (Kerssies et al., CVPR 2025, Sec. 3.3): before ``begin`` it is 1, then
    (1 - progress) ** ``power``, from ``end`` on 0.

    Args:
        begin, end: iterations, one of each for every query block; None: of n blocks the i-th, from
            0, goes from (i + 1) / (n + 2) to (i + 2) / (n + 2) of the training.
        power: the exponent.

    Raises:
        ValueError: only one of ``begin`` and ``end``, or an end before its begin; when the training
            starts, if the model has no EoMT, or one of another number of query blocks.
    """

    priority = 'ABOVE_NORMAL'  # It runs before weights are averaged and a checkpoint is written.

    def __init__(self, begin: Sequence[int] | None = None, end: Sequence[int] | None = None,
                 power: float = 0.9) -> None:
        starts, ends = begin or (), end or ()
        if len(starts) != len(ends) or any(map(operator.gt, starts, ends)):
            raise ValueError(f'begin={begin} and end={end} must be lists of the same length, with '
                             f'no end before its begin, or both None')
        self.begin, self.end, self.power = begin, end, power

    def before_train(self, runner: Runner) -> None:
        """Check the model, and set the probabilities of the first iteration, also if the training
        is resumed."""
        model = next((each for each in unwrapped_model(runner.model).modules()
                      if isinstance(each, EoMT)), None)
        if model is None:
            raise ValueError('MaskAnnealingHook: the model has no mmposenc.EoMT; leave the hook '
                             'out')
        if self.begin is not None and len(self.begin) != len(model.query_blocks):
            raise ValueError(f'begin={self.begin} must have a number for each of the '
                             f'{len(model.query_blocks)} query blocks')
        self._mask_probs = model.predictor.mask_probs
        self._set_probabilities(runner, runner.iter)

    def after_train_iter(self, runner: Runner, batch_idx: int, data_batch: object = None,
                         outputs: object = None) -> None:
        """Set the probabilities of the next iteration."""
        self._set_probabilities(runner, runner.iter + 1)

    def probabilities(self, iteration: int, max_iters: int, count: int) -> list[float]:
        """The probability of each of ``count`` query blocks at an iteration out of ``max_iters``.
        """
        steps = [max_iters * step / (count + 2) for step in range(1, count + 2)]
        begin, end = self.begin or steps[:-1], self.end or steps[1:]
        return [float(iteration < first) if not first <= iteration < last
                else (1 - (iteration - first) / (last - first)) ** self.power
                for first, last in zip(begin, end, strict=True)]

    def _set_probabilities(self, runner: Runner, iteration: int) -> None:
        self._mask_probs.copy_(torch.tensor(
            self.probabilities(iteration, runner.max_iters, len(self._mask_probs))))
