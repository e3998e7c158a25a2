"""Lists the weights of a checkpoint that do not fit a model."""
from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor

from . import recognise
from .encoding_names import GRIDS
from .rules import names_text


def mismatch_text(model: Mapping[str, Tensor], checkpoint: Mapping[str, Tensor]) -> str:
    """Lists the weights of a checkpoint that do not fit a model; '' if all fit.

    A release's own file, of which nothing fits, is called that, with what to do about it.

    Args:
        model: the state dict that the model has.
        checkpoint: the state dict to be loaded.

    Returns:
        A line each for missing, unexpected and differently shaped names.
    """
    model = {name: value for name, value in model.items() if 'num_batches_tracked' not in name}
    missing = [name for name in model if name not in checkpoint and not name.endswith(GRIDS)]
    unexpected = [name for name in checkpoint
                  if name not in model and 'num_batches_tracked' not in name]
    reshaped = [f'{name}: {tuple(checkpoint[name].shape)} in the file, '
                f'{tuple(value.shape)} here' for name, value in model.items()
                if name in checkpoint and checkpoint[name].shape != value.shape]
    # The grids of tables whose shape does not say which grid they are for.
    reshaped += [f'{name}: {tuple(checkpoint[name].tolist())} in the file, '
                 f'{tuple(value.tolist())} here' for name, value in model.items()
                 if name.endswith(GRIDS) and name in checkpoint
                 and checkpoint[name].tolist() != value.tolist()]
    lines = [f'{len(names)} {what}: {names_text(names, 12)}' for what, names in (
        ('missing', missing), ('unexpected', unexpected), ('of another shape', reshaped)) if names]
    return '\n'.join(lines if set(model) & set(checkpoint) else [*_origin(checkpoint), *lines])


def _origin(checkpoint: Mapping[str, Tensor]) -> list[str]:
    """A line about the source of a file, if its names show it."""
    try:
        source = recognise(checkpoint)
    except ValueError as error:
        return [str(error)]
    return [] if source is None else [f'its names are those of source {source!r}: convert it with '
                                      f'`mmposenc convert {source} FILE OUT.pth`']
