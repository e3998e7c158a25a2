"""A linear probe that predicts the absolute position from the tokens of each block."""
from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.overrides import TorchFunctionMode

from mmposenc.functional.convolutions import padding_cells

from ..figures.subjects import reference_cells
from .features import Examined
from .measure import Measure, Series, line, table

#: Ways to pad a map in convolutions.
BORDERS = ('zeros', 'replicate', 'circular')
_CONVOLUTIONS: set[Callable[..., Any]] = {F.conv2d, torch.conv2d}


class Borders(TorchFunctionMode):
    """A context in which 2-D convolutions with zero padding pad in another way, with the same
    weights; convolutions without padding are not changed.

    Args:
        border: 'zeros' changes nothing; 'replicate' repeats the outermost cells; 'circular'
            continues at the opposite side, also for maps smaller than the padding.

    Attributes:
        padded: number of calls of convolutions with padding.

    Raises:
        ValueError: another border.
    """

    def __init__(self, border: str) -> None:
        super().__init__()
        if border not in BORDERS:
            raise ValueError(f'border={border!r} must be one of {BORDERS}')
        self.border, self.padded = border, 0

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func not in _CONVOLUTIONS:
            return func(*args, **kwargs)
        given = dict(zip(('input', 'weight', 'bias', 'stride', 'padding', 'dilation', 'groups'),
                         args, strict=False)) | kwargs
        pads = padding_cells(given.get('padding', 0), given['weight'].shape[-2:],
                             given.get('dilation', 1))
        if not any(pads):
            return func(*args, **kwargs)
        self.padded += 1
        if self.border == 'zeros':
            return func(*args, **kwargs)
        given.update(input=surround(given['input'], pads, self.border), padding=0)
        return func(**given)


def surround(x: Tensor, pads: tuple[int, int], border: str) -> Tensor:
    """A map (..., H, W) padded by rows and columns, 'replicate' or 'circular'."""
    for dim, pad in zip((-2, -1), pads, strict=True):
        side = x.shape[dim]
        place = torch.arange(-pad, side + pad, device=x.device)
        x = x.index_select(dim, place % side if border == 'circular' else place.clamp(0, side - 1))
    return x


#: Number of crops to fit the probe, to choose the penalty, and to test.
CROPS = (12, 6, 6)
#: Weights of the penalty, for channels of variance 1.
PENALTIES = (1e-6, 1e-4, 1e-2, 1.0)
#: Largest number of rows and columns of a map that the probe uses.
CELLS = 14

PROBE = Measure(
    'position_probe', 'Position that a linear probe predicts',
    'R2 = 1 - sum (y - y_hat)^2 / sum (y - mean y)^2 on test crops. y is the row (column) of a '
    'cell; y_hat = w . z + b for its token z, with channels scaled to mean 0 and variance 1, and w '
    'that minimises sum (y - y_hat)^2 + n lambda |w|^2; lambda is chosen on validation crops. The '
    'pictures are random crops, flipped at random in both directions, so that their content is '
    'independent of the position (after Islam et al., ICLR 2020). 1: the position is predicted '
    'exactly; 0 or less: not at all. "zeros" is the model itself; "replicate" and "circular" '
    'change the padding of its convolutions, with the same weights.',
    'R2, mean of rows and columns', 'block, in order (0 is the first map)', 'R2')


def ridge(x: Tensor, y: Tensor, penalty: float) -> Tensor:
    """Weights (C, T) that minimise ||y - x w||^2 / n + penalty |w|^2, for x (n, C), y (n, T)."""
    gram = x.T @ x / len(x) + penalty * torch.eye(x.shape[1], dtype=x.dtype, device=x.device)
    return torch.linalg.solve(gram, x.T @ y / len(x))


def r_squared(found: Tensor, wanted: Tensor) -> Tensor:
    """R2 (T,) of predictions (n, T): 1 - residual / variance; NaN for a constant target."""
    return 1 - (wanted - found).square().sum(0) / (wanted - wanted.mean(0)).square().sum(0)


def read_position(tokens: Tensor, splits: Sequence[int] = CROPS) -> tuple[float, float]:
    """R2 of a linear probe for row and column.

    Args:
        tokens: (crops, C, H, W): crops to fit, then to choose the penalty, then to test.
        splits: number of crops of each kind.

    Returns:
        R2 of rows and of columns; NaN for a map of one row (column).
    """
    count, channels, height, width = tokens.shape
    rows, cols = torch.meshgrid(*((torch.arange(side, dtype=torch.float64) + 0.5) / side
                                  for side in (height, width)), indexing='ij')
    places = torch.stack((rows.flatten(), cols.flatten()), 1)  # (H * W, 2)
    cells = tokens.double().cpu().permute(0, 2, 3, 1).flatten(1, 2)  # (crops, H * W, C)
    parts = [(part.flatten(0, 1), places.repeat(len(part), 1)) for part in cells.split(splits)]
    (x, y), (x_choice, y_choice), (x_test, y_test) = parts
    mean, scale = x.mean(0), x.std(0)
    scale = torch.where(scale > 1e-12 * mean.abs().clamp(min=1e-12), scale, 1.0)
    x, x_choice, x_test = ((each - mean) / scale for each in (x, x_choice, x_test))
    centre = y.mean(0)
    weights = [ridge(x, y - centre, penalty) for penalty in PENALTIES]
    scores = torch.stack([r_squared(x_choice @ w + centre, y_choice) for w in weights])
    best = scores.nan_to_num(-torch.inf).argmax(0)  # (2,): for rows and for columns
    chosen = torch.stack([weights[index][:, target] for target, index in
                          enumerate(best.tolist())], 1)
    row, col = r_squared(x_test @ chosen + centre, y_test).tolist()
    return row, col


def random_crops(images: Tensor, count: int, seed: int) -> Tensor:
    """Random crops of images in turn, resized to the size of the images.

    Args:
        images: (B, C, H, W).
        count: number of crops.
        seed: seed of their positions, sizes and flips.

    Returns:
        (count, C, H, W). A side is half to all of the image's side; each crop is flipped in each
        direction with probability 1/2.
    """
    generator = torch.Generator().manual_seed(seed)
    size = (images.shape[-2], images.shape[-1])
    crops = []
    for index in range(count):
        share, at_row, at_col, flip_row, flip_col = torch.rand(5, generator=generator).tolist()
        height, width = (max(1, round(side * (0.5 + share / 2))) for side in size)
        top, left = (round((side - part) * at) for side, part, at in
                     zip(size, (height, width), (at_row, at_col), strict=True))
        crop = images[index * len(images) // count, :, top:top + height, left:left + width]
        dims = [dim for dim, draw in ((-2, flip_row), (-1, flip_col)) if draw < 0.5]
        crops.append(F.interpolate(crop.flip(dims)[None], size, mode='bilinear',
                                   align_corners=False))
    return torch.cat(crops)


def measure_probe(examined: Examined, images: Mapping[str, Tensor], seed: int = 0
                  ) -> list[Measure]:
    """:data:`PROBE`.

    Args:
        examined: the model.
        images: (B, C, H, W) by name; for 'noise' each crop is new noise. The map is of the last.
        seed: seed of the crops.
    """
    series: list[Series] = []
    columns: dict[str, list[float]] = {}
    value: float | None = None
    names: list[str] = []
    padded = True
    for kind, batch in images.items():
        crops = (torch.randn(sum(CROPS), *batch.shape[1:],
                             generator=torch.Generator().manual_seed(seed + 1)).to(batch)
                 if kind == 'noise' else random_crops(batch, sum(CROPS), seed))
        columns.clear()
        for border in BORDERS if padded else BORDERS[:1]:
            names, scores, padded = _scores(examined, crops, border)
            means = [(row + col) / 2 for row, col in scores]
            series.append(line(f'{kind}, {border}', range(len(means)), means))
            value = means[-1] if border == 'zeros' else value
            for target, which in enumerate(('row', 'column')):
                columns[f'{which}, {border}'] = [each[target] for each in scores]
            if not padded:
                break
    text = (f'At most {CELLS} x {CELLS} cells, {sum(CROPS)} crops. Value: the last map, '
            f'{names[-1]}, with zeros, on {kind}. Map: each block, with zeros, on {kind}.')
    if not padded:
        text += ' No convolution of this model has padding, so there is nothing to replace.'
    grid = table(names, list(columns), list(zip(*columns.values(), strict=True)))
    return [PROBE.of(text, value, series, grid)]


def _scores(examined: Examined, crops: Tensor, border: str
            ) -> tuple[list[str], list[tuple[float, float]], bool]:
    """Names of the blocks, R2 of rows and columns for each, and whether any convolution pads."""
    kept: dict[str, list[Tensor]] = {}
    with Borders(border) as mode:
        for part in crops.split(8):
            for each in examined.maps(part):
                kept.setdefault(each.name, []).append(_some_cells(each.values))
    scores = [read_position(torch.cat(parts)) for parts in kept.values()]
    return list(kept), scores, mode.padded > 0


def _some_cells(values: Tensor) -> Tensor:
    """At most CELLS rows and columns of a map (B, C, H, W), spread evenly."""
    cells = torch.tensor(reference_cells((values.shape[-2], values.shape[-1]), CELLS),
                         device=values.device)  # (rows, columns, 2)
    return values[..., cells[:, :1, 0], cells[:1, :, 1]]
