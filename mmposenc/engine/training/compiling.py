"""Compiles the parts of a model that repeat, by torch.compile."""
from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.fx.experimental._config as shape_config
from mmengine.hooks import Hook
from mmengine.runner import Runner
from torch import nn

#: Classes of mmdet and mmseg that are compiled too. Classes of this project say ``is_region =
#: True`` themselves.
OTHERS = ('FPN', 'BasicBlock', 'Bottleneck')
#: The largest number of graphs in all: for the sizes of stages, training and evaluation, with and
#: without a mask. (torch counts all modules together, and beyond the limit runs them uncompiled.)
MAX_GRAPHS = 128


class CompileHook(Hook):
    """Compiles the blocks of a model in place before a run; names of weights stay.

    mmengine's own option, ``compile=True``, compiles a whole training step, whose losses and data
    preprocessor fall into many graphs that are made again for every size.

    Each module of some classes is compiled on its own: one graph takes all sizes and paddings, and
    modules of one size share it. Larger parts compile for minutes: sizes become nested formulas.
    Blocks that take padded batches image by image (encodings that follow each image's extent, with
    ``mask_padding``) are compiled before and after their attention.

    Args:
        regions: names of classes; None: those that say ``is_region = True``, themselves and not by
            inheritance, and mmdet's FPN and blocks of ResNets.
        backend: as of ``torch.compile``.
        dynamic: sizes are symbols from the first batch on. False compiles again for each size,
            which is faster where all images have one.
        options: further arguments of ``torch.compile``.

    Raises:
        ValueError: when a run begins: the model has no module of ``regions``.
    """

    def __init__(self, regions: Sequence[str] | None = None, backend: str = 'inductor',
                 dynamic: bool | None = True, **options: object) -> None:
        self.regions = regions
        self.options = dict(backend=backend, dynamic=dynamic, **options)

    def before_run(self, runner: Runner) -> None:
        """Compile the blocks before the first step."""
        counts = compile_regions(runner.model, self.regions, **self.options)
        runner.logger.info(f'Compiles {counts} with {self.options["backend"]}; the first steps '
                           f'take longer')


def compile_regions(model: nn.Module, regions: Sequence[str] | None = None, **options: object
                    ) -> dict[str, int]:
    """Compile the modules of some classes in place.

    Args:
        model: any model, wrapped for several processes or not.
        regions: as of :class:`CompileHook`.
        options: those of ``torch.compile``; for batches of many sizes with ``dynamic=True``.

    Returns:
        How many modules of each class are compiled.

    Raises:
        ValueError: if there is none.
    """
    # Otherwise an epsilon becomes a symbol, which cannot be stored, and every graph would be traced
    # twice.
    torch._dynamo.config.specialize_float = True
    # Sizes that are equal in the first batch need not always be equal: a grid may be as high as it
    # has channels.
    shape_config.use_duck_shape = False
    torch._dynamo.config.cache_size_limit = max(MAX_GRAPHS, torch._dynamo.config.cache_size_limit)
    counts: dict[str, int] = {}
    for module in model.modules():
        name = type(module).__name__
        if (name in regions if regions is not None else
                name in OTHERS or vars(type(module)).get('is_region')):
            module.compile(**options)
            counts[name] = counts.get(name, 0) + 1
    if not counts:
        raise ValueError(f'regions={regions!r}: {type(model).__name__} has no module of these '
                         f'classes; name some of its own')
    return counts
