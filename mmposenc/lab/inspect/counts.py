"""Parameters and multiply-accumulates of the model of a config."""
from __future__ import annotations

from typing import NamedTuple

from mmengine.config import Config
from torch import Tensor, nn

from mmposenc.attention.building import parameter_counts
from mmposenc.backbones.complexity import multiply_accumulates
from mmposenc.backbones.encodings_of_model import encoding_kinds, encoding_lines
from mmposenc.engine.config.images import noise_image, run_network
from mmposenc.engine.config.models import build_bare
from mmposenc.engine.config.parsed import ParsedConfig
from mmposenc.terminal.messages import error_text


class Counts(NamedTuple):
    """What a model takes for one image of one size, heads included.

    Attributes:
        hw_shape: (H, W) of the model's input in pixels.
        parameters: number of all parameters.
        parameters_without: number of those outside of position encodings.
        macs: multiply-accumulates.
        model: the model's class, and its backbone's.
        encodings: a line for each kind.
        note: what a reader must know of the counts, or ''.
    """

    hw_shape: tuple[int, int]
    parameters: int
    parameters_without: int
    macs: int
    model: str
    encodings: list[str]
    note: str = ''


def count_for_one_image(cfg: Config, hw_shape: tuple[int, int]) -> Counts:
    """Count what the model of a config takes for one image.

    Attention and encodings are counted by their definition, over all pairs. Post-processing, such
    as the suppression of boxes, is no part of it. Models that look at their numbers (proposals
    of a region proposal network) can't run on the meta device; they run on the CPU with random
    weights, and their second stages are counted for the proposals that these give.

    Args:
        cfg: a config of mmdet, mmseg or mmpretrain, of this project's models or others.
        hw_shape: (H, W) of the input, after the preprocessor's padding.

    Raises:
        ValueError: a size below 1.
    """
    if min(hw_shape) < 1:
        raise ValueError(f'size={tuple(hw_shape)} must be at least (1, 1)')
    parsed = ParsedConfig(cfg)
    image, note = noise_image(parsed, hw_shape), ''
    try:
        model = build_bare(cfg, 'meta')
        macs = _macs_of_run(parsed.library, model, image.to('meta'))
    except Exception as error:  # A model that needs numbers may raise anything.
        model = build_bare(cfg)
        _set_to_reference(model)
        macs = _macs_of_run(parsed.library, model, image)
        reason = error_text(error).splitlines()[0]
        note = f'counted with random weights on the CPU; shapes do not suffice ({reason})'
    sizes = parameter_counts(model)
    of_encodings = {each for kind in encoding_kinds(model) for each in kind.parameters.values()}
    others = sum(number for key, number in sizes.items() if key not in of_encodings)
    on = f' on {type(model.backbone).__name__}' if hasattr(model, 'backbone') else ''
    return Counts(hw_shape, sum(sizes.values()), others, macs, f'{type(model).__name__}{on}',
                  encoding_lines(model), note)


def _macs_of_run(library: str, model: nn.Module, image: Tensor) -> int:
    model.requires_grad_(False)
    return multiply_accumulates(lambda: run_network(library, model, image))


def _set_to_reference(model: nn.Module) -> None:
    """Let a model compute attention and pooling by their references, so that a CPU counts what any
    device computes."""
    for module in model.modules():
        if getattr(module, 'implementation', None) == 'auto':
            setattr(module, 'implementation', 'reference')  # noqa: B010  (none of a Module)
