"""Reduces the masked attention of EoMT in the course of a training."""
from __future__ import annotations

from itertools import pairwise

import torch
from mmengine.hooks import Hook
from mmengine.runner import Runner

from mmposenc.backbones import EoMT

from .processes import unwrapped_model


class MaskAnnealingHook(Hook):
    """Lowers the probability of masked attention in each query block of an EoMT from 1 to 0
    (Kerssies et al., CVPR 2025, Sec. 3.3). Of n blocks the i-th, from 0, changes between
    (i + 1) / (n + 2) and (i + 2) / (n + 2) of the training, as (1 - progress) ** ``power``.

    Args:
        power: the exponent.

    Raises:
        ValueError: when the training starts: the model has no EoMT.
    """

    priority = 'ABOVE_NORMAL'  # It runs before weights are averaged and a checkpoint is written.

    def __init__(self, power: float = 0.9) -> None:
        self.power = power

    def before_train(self, runner: Runner) -> None:
        """Check the model, and set the probabilities of the first iteration, also if the training
        is resumed."""
        model = next((each for each in unwrapped_model(runner.model).modules()
                      if isinstance(each, EoMT)), None)
        if model is None:
            raise ValueError('MaskAnnealingHook: the model has no mmposenc.EoMT; leave the hook '
                             'out')
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
        return [float(iteration < first) if not first <= iteration < last
                else (1 - (iteration - first) / (last - first)) ** self.power
                for first, last in pairwise(steps)]

    def _set_probabilities(self, runner: Runner, iteration: int) -> None:
        self._mask_probs.copy_(torch.tensor(
            self.probabilities(iteration, runner.max_iters, len(self._mask_probs))))
