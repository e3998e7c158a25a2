"""Weights that a training step does not reach: several processes can't train such a model."""
from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from mmengine.hooks import Hook
from torch import nn

from .processes import plain_model


def without_gradient(model: nn.Module, data: Any) -> list[str]:
    """Names of the trained weights that a training step leaves without a gradient.

    The model, its buffers and the random generators are as before afterwards.

    Args:
        model: a model of OpenMMLab, not wrapped.
        data: a batch as the data loader gives it.
    """
    mode = model.training
    with _unchanged(model):
        model.train()
        prepared = model.data_preprocessor(data, training=True)
        losses = model(**prepared, mode='loss')
        model.parse_losses(losses)[0].backward()
        names = [name for name, p in model.named_parameters()
                 if p.requires_grad and p.grad is None]
        model.zero_grad(set_to_none=True)
    model.train(mode)
    return names


@contextmanager
def _unchanged(model: nn.Module) -> Iterator[None]:
    """Buffers (running statistics) and random generators get back what they had."""
    buffers = {name: buffer.clone() for name, buffer in model.named_buffers()}
    states = random.getstate(), np.random.get_state()
    devices = list(range(torch.cuda.device_count())) if torch.cuda.is_available() else []
    with torch.random.fork_rng(devices):
        yield
    random.setstate(states[0])
    np.random.set_state(states[1])
    with torch.no_grad():
        for name, buffer in model.named_buffers():
            buffer.copy_(buffers[name])


class GradientCheckHook(Hook):
    """Tries a training step on one batch before several processes train together.

    DistributedDataParallel waits for the gradient of every weight; one that never comes stops
    training in the second step, with a message that names no weight. Nothing is done in a run of
    one process, or with ``find_unused_parameters=True``.

    Raises:
        ValueError: names the weights without a gradient; or for gradients accumulated in a static
            graph.
    """
    priority = 'VERY_LOW'  # after the weights are loaded and every other hook is ready

    def before_train(self, runner: Any) -> None:
        if runner.world_size == 1 or getattr(runner.model, 'find_unused_parameters', False) \
                or not isinstance(runner.model, nn.parallel.DistributedDataParallel):
            return
        counts = getattr(runner.optim_wrapper, '_accumulative_counts', 1)
        if getattr(runner.model, 'static_graph', False) and counts > 1:
            # torch notes the graph in the first backward pass, which here sends nothing.
            raise ValueError(f'model_wrapper_cfg.static_graph=True with '
                             f'optim_wrapper.accumulative_counts={counts}: torch can\'t do both; '
                             'leave one of them out')
        model = plain_model(runner.model)
        loader = runner.train_dataloader
        samples = [loader.dataset[i % len(loader.dataset)] for i in range(2)]
        names = without_gradient(model, loader.collate_fn(samples))
        if names:
            shown = ', '.join(names[:6]) + (f' and {len(names) - 6} more' if names[6:] else '')
            raise ValueError(
                f'{len(names)} weights get no gradient: {shown}; several processes would wait '
                'for them. Take the layer out of the model, freeze it, or set '
                'find_unused_parameters=True (slower)')
