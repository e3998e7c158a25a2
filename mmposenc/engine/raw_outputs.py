"""A detector, segmentor or classifier from an image tensor to its raw outputs."""
from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .models import image_samples

#: Parts that no exported program can hold yet, by class name, and why.
REFUSED = {
    'MultiScaleDeformableAttention': 'deformable attention samples maps at places that it computes',
    'PPM': 'pooling to a fixed grid (PSPNet, UperNet) takes one size of images only; use '
           '--fixed-size',
}


class RawOutputs(nn.Module):
    """Images in, what the heads give out, before any threshold, suppression or resizing.

    Args:
        model: a model of mmdet, mmseg or mmpretrain, in evaluation.
        normalisation: (mean, standard deviation) of the channels, to be part of it; None: images
            come normalised.

    Images fill their batch: there is no padding. Detectors of one stage give maps of scores and
    boxes for each level, the family of DETR what its last layer says of each query, segmentors
    logits at the stride of their head, classifiers logits.
    """

    def __init__(self, model: nn.Module,
                 normalisation: tuple[Sequence[float], Sequence[float]] | None = None) -> None:
        super().__init__()
        self.model = model
        self.normalises = normalisation is not None
        for name, values in zip(('mean', 'std'), normalisation or ((), ()), strict=True):
            self.register_buffer(name, torch.tensor(list(values)).view(-1, 1, 1), persistent=False)
        self.queries = hasattr(model, 'forward_transformer')
        for module in model.modules():
            if type(module).__module__.startswith('mmseg') and type(module).__name__ == 'Upsample':
                module.forward = _Upsample(module)  # type: ignore[method-assign]

    def forward(self, images: Tensor) -> tuple[Tensor, ...]:
        """(B, C, H, W) float32 to tensors, in the order of :meth:`names`."""
        return tuple(each for _, each in self._named(images))

    @torch.no_grad()
    def names(self, images: Tensor) -> list[str]:
        """Names of the outputs of such images."""
        return [name for name, _ in self._named(images)]

    def _named(self, images: Tensor) -> Iterator[tuple[str, Tensor]]:
        if self.normalises:
            images = (images - self.mean) / self.std
        if self.queries:
            # While exporting there are no samples: images fill their batch.
            samples = None if torch.compiler.is_exporting() else image_samples(images)
            scores, boxes = self.model(images, samples, mode='tensor')[:2]
            found: Any = (scores[-1], boxes[-1])
        else:
            found = self.model(images, mode='tensor')
        if isinstance(found, Tensor):
            yield 'logits', found
            return
        for name, part in zip(('cls_score', 'bbox_pred', 'centerness'), found, strict=False):
            if isinstance(part, Tensor):
                yield name, part
            else:
                yield from ((f'{name}_{level}', each) for level, each in enumerate(part))


class _Upsample:
    """mmseg's Upsample without ``int()``, which makes a number of a symbol."""

    def __init__(self, module: nn.Module) -> None:
        self.module = module

    def __call__(self, x: Tensor) -> Tensor:
        own: Any = self.module
        factors = own.scale_factor if isinstance(own.scale_factor, tuple) else (
            own.scale_factor,) * 2
        size = own.size or [side * int(factor) if factor == int(factor) else int(side * factor)
                            for side, factor in zip(x.shape[-2:], factors, strict=True)]
        return F.interpolate(x, size, None, own.mode, own.align_corners)


def refuse(model: nn.Module, fixed_size: bool) -> None:
    """Raise for a model that can't be exported, naming the part that is in the way.

    Args:
        model: of mmdet, mmseg or mmpretrain.
        fixed_size: whether images of one size are enough.

    Raises:
        ValueError: naming the part, and why.
    """
    if hasattr(model, 'roi_head') or hasattr(model, 'rpn_head'):
        raise ValueError(f'{type(model).__name__} has two stages: the number of its proposals '
                         f'depends on the image, and there are no raw outputs between; export a '
                         f'detector of one stage, or the backbone (docs/export.md)')
    for name, module in model.named_modules():
        kind = next((base.__name__ for base in type(module).__mro__ if base.__name__ in REFUSED),
                    None)
        if kind is not None and not (fixed_size and '--fixed-size' in REFUSED[kind]):
            raise ValueError(f'{name} is a {kind}: {REFUSED[kind]}')
        if getattr(module, 'locality', None) == 'random_sparse':
            raise ValueError(f"{name} is a ContextPool with locality='random_sparse', which draws "
                             f'other tokens in each call')
