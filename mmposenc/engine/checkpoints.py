"""Which checkpoint to use, and whether it fits the model."""
from __future__ import annotations

import re
import zipfile
from collections import defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path

from torch import Tensor


def latest_checkpoint(work_dir: str | Path) -> str | None:
    """The newest complete checkpoint in a work directory, or None.

    Unlike mmengine's, it also serves a run that was killed while it wrote: a name in
    ``last_checkpoint`` whose file is gone or cut short gives way to the newest whole one.
    """
    folder = Path(work_dir)
    marker = folder / 'last_checkpoint'
    if marker.is_file():
        path = Path(marker.read_text().strip())
        if _is_whole(path):
            return str(path)
    saved = [(int(match[1]), str(path)) for path in folder.glob('*.pth')
             if (match := re.fullmatch(r'(?:epoch|iter)_(\d+)\.pth', path.name))
             and _is_whole(path)]
    return max(saved)[1] if saved else None


def _is_whole(path: Path) -> bool:
    return path.is_file() and zipfile.is_zipfile(path)


def mismatch(model: Mapping[str, Tensor], checkpoint: Mapping[str, Tensor]) -> str:
    """Says what of a checkpoint does not fit a model; an empty string when all of it does.

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
    reshaped = [f'{name}: {tuple(checkpoint[name].shape)} in the checkpoint, '
                f'{tuple(value.shape)} in the model' for name, value in model.items()
                if name in checkpoint and checkpoint[name].shape != value.shape]
    parts = [_section('in the model but not in the checkpoint', _grouped(missing), len(missing)),
             _section('in the checkpoint but not in the model', _grouped(unexpected),
                      len(unexpected)),
             _section('of another shape', reshaped, len(reshaped))]
    return '\n'.join(part for part in parts if part)


def _section(title: str, lines: list[str], count: int, most: int = 20) -> str:
    if not lines:
        return ''
    shown = lines[:most] + [f'... and {len(lines) - most} more lines'] * (len(lines) > most)
    return '\n'.join([f'{count} {title}:', *(f'  {line}' for line in shown)])


def _grouped(names: Iterable[str], depth: int = 3) -> list[str]:
    """'backbone.layers.0.{norm1.weight, norm1.bias}', by the first parts of the name."""
    groups: dict[str, list[str]] = defaultdict(list)
    for name in names:
        parts = name.split('.')
        cut = min(depth, len(parts) - 1)
        groups['.'.join(parts[:cut])].append('.'.join(parts[cut:]))
    return [f'{prefix}.{leaves[0]}' if len(leaves) == 1
            else f'{prefix}.{{{", ".join(leaves[:4])}{", ..." if len(leaves) > 4 else ""}}} '
                 f'({len(leaves)})' for prefix, leaves in groups.items()]
