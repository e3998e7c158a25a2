"""Parameters and multiply-accumulates of the model of a config, with and without encodings."""
from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from mmengine.config import Config
from torch import Tensor, nn

from mmposenc.backbones.complexity import multiply_accumulates
from mmposenc.backbones.structure import encoding_kinds, encoding_lines, is_attention
from mmposenc.encodings.base import TokenEncoding
from mmposenc.engine.config.models import build_bare, noise_images, run_network
from mmposenc.engine.config.testing import scope_of
from mmposenc.terminal.messages import error_text


class Counts(NamedTuple):
    """What a model takes for one image of one size, heads included.

    Attributes:
        hw_shape: (H, W) of the model's input in pixels.
        parameters, macs: of the model as it is.
        parameters_without, macs_without: of the model without its position encodings; of
            multiply-accumulates None if that is not wanted, or the model does not run without them.
        model: the model's class, and its backbone's.
        encodings: a line for each kind.
        note: what a reader must know of the counts, or ''.
    """

    hw_shape: tuple[int, int]
    parameters: int
    macs: int
    parameters_without: int
    macs_without: int | None
    model: str
    encodings: list[str]
    note: str = ''


def count_for_one_image(cfg: Config, hw_shape: tuple[int, int], *, without: bool = True) -> Counts:
    """Count what the model of a config takes for one image.

    Attention and encodings are counted by their definition, over all pairs. Post-processing, such
    as the suppression of boxes, is no part of it. Models that look at their numbers (proposals
    of a region proposal network) can't run on the meta device; they run on the CPU with random
    weights, and their second stages are counted for the proposals that these give.

    Args:
        cfg: a config of mmdet, mmseg or mmpretrain, of this project's models or others.
        hw_shape: (H, W) of the input, after the preprocessor's padding.
        without: count the model without its encodings too.

    Raises:
        ValueError: a size below 1.
    """
    if min(hw_shape) < 1:
        raise ValueError(f'size={tuple(hw_shape)} must be at least (1, 1)')
    image = noise_images(cfg, hw_shape)
    try:
        model = build_bare(cfg, 'meta')
        macs = _multiply_accumulates(cfg, model, image.to('meta'))
        device, note = 'meta', ''
    except Exception as error:  # A model that needs numbers may raise anything.
        model = _set_to_reference(build_bare(cfg))
        macs = _multiply_accumulates(cfg, model, image)
        reason = error_text(error).splitlines()[0]
        device = 'cpu'
        note = f'counted with random weights on the CPU; shapes do not suffice ({reason})'
    kinds = encoding_kinds(model)
    every = {id(each): each.numel() for each in model.parameters()}
    of_encodings = {id(each) for kind in kinds for each in kind.parameters.values()}
    others = sum(number for key, number in every.items() if key not in of_encodings)
    stays = [name for kind in kinds for name, module in kind.modules.items()
             if not getattr(module, 'keeps_grid', True)]
    macs_without = None
    if stays and without:
        changes = f'{stays[0]} changes the grid, so the model does not run without it'
        note = f'{note}; {changes}' if note else changes
    elif without:
        other = build_bare(cfg, device)
        other = _set_to_reference(other) if device == 'cpu' else other
        macs_without = macs_without_encodings(cfg, other, image.to(device))
    on = f' on {type(model.backbone).__name__}' if hasattr(model, 'backbone') else ''
    return Counts(hw_shape, sum(every.values()), macs, others, macs_without,
                  f'{type(model).__name__}{on}', encoding_lines(model), note)


def _multiply_accumulates(cfg: Config, model: nn.Module, image: Tensor,
                          inside: Sequence[nn.Module] = ()) -> int:
    model.requires_grad_(False)
    total, share = multiply_accumulates(lambda: run_network(scope_of(cfg), model, image), inside)
    return total - share


def macs_without_encodings(cfg: Config, model: nn.Module, image: Tensor) -> int:
    """The multiply-accumulates of a model without its encodings. Encodings of this project are
    removed, and those of other libraries are subtracted by their share. The model is changed."""
    foreign = [module for kind in encoding_kinds(model) for module in kind.modules.values()
               if kind.foreign and kind.noun == 'module']
    remove_encodings(model)
    return _multiply_accumulates(cfg, model, image, foreign)


def remove_encodings(model: nn.Module) -> None:
    """Remove all encodings of this project from a model, which must not be used for anything else
    afterwards."""
    for module in model.modules():
        if isinstance(module, TokenEncoding):
            module.forward = _return_unchanged  # type: ignore[method-assign]
        elif is_attention(module):
            setattr(module, 'rel_pos_encoding', None)  # noqa: B010  (no attribute of a Module)


def _return_unchanged(x: Tensor, *_: Any, **__: Any) -> Tensor:
    return x


def _set_to_reference(model: nn.Module) -> nn.Module:
    """Let a model compute attention and pooling by their references, so that a CPU counts what any
    device computes. The model is changed, and returned."""
    for module in model.modules():
        if getattr(module, 'implementation', None) == 'auto':
            setattr(module, 'implementation', 'reference')  # noqa: B010  (none of a Module)
    return model
