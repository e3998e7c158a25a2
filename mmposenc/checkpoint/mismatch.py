"""Lists the weights of a checkpoint that do not fit a model."""
from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping

from torch import Tensor

from .encoding_names import GRIDS
from .recognition import recognise


def mismatch_text(model: Mapping[str, Tensor], checkpoint: Mapping[str, Tensor]) -> str:
    """Lists the weights of a checkpoint that do not fit a model; '' if all fit.

    A release's own file, of which nothing fits, is called that, with what to do about it.

    Args:
        model: the state dict that the model has.
        checkpoint: the state dict to be loaded.

    Returns:
        Missing, unexpected and differently shaped names, those of one module on one line.
    """
    model = {name: value for name, value in model.items() if 'num_batches_tracked' not in name}
    missing = [name for name in model if name not in checkpoint]
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
    parts = [_section_text('missing', _grouped_names(missing), len(missing)),
             _section_text('unexpected', _grouped_names(unexpected), len(unexpected)),
             _section_text('of another shape', reshaped, len(reshaped))]
    origin = '' if set(model) & set(checkpoint) else _origin_text(checkpoint)
    return '\n'.join(part for part in (origin, *parts) if part)


def _origin_text(checkpoint: Iterable[str]) -> str:
    """The source of a file, if its names show it, for the message."""
    try:
        source = recognise(checkpoint)
    except ValueError as error:
        return str(error)
    return '' if source is None else (
        f'its names are those of source {source!r}: convert it with '
        f'`mmposenc convert {source} FILE OUT.pth`')


def _section_text(title: str, lines: list[str], count: int, most: int = 20) -> str:
    if not lines:
        return ''
    shown = lines[:most]
    if len(lines) > most:
        shown.append(f'... and {len(lines) - most} more lines')
    # The first name stands beside the title, because a console shows only two lines of an error.
    return '\n  '.join([f'{count} {title}: {shown[0]}', *shown[1:]])


def _grouped_names(names: Iterable[str], depth: int = 3) -> list[str]:
    """Write names in groups by their first parts: 'backbone.layers.0.{norm1.weight, norm1.bias}'.
    """
    groups: dict[str, list[str]] = defaultdict(list)
    for name in names:
        parts = name.split('.')
        cut = min(depth, len(parts) - 1)
        groups['.'.join(parts[:cut])].append('.'.join(parts[cut:]))
    return [f'{prefix}.{leaves[0]}' if len(leaves) == 1
            else f'{prefix}.{{{", ".join(leaves[:4])}{", ..." if len(leaves) > 4 else ""}}} '
                 f'({len(leaves)})' for prefix, leaves in groups.items()]
