"""Measures trained models: attention distance, error under shifts, and a linear probe of positions.
"""
from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean

import torch
import torch.nn.functional as F
from torch import Tensor

from .drawing import Picture, draw_line
from .figures import reference_cells
from .recording import AttentionCall, InspectedModel

#: The numbers of crops to fit the probe, to choose the penalty, and to test.
CROPS = (12, 6, 6)
#: The penalties that are tried, for channels of variance 1.
PENALTIES = (1e-6, 1e-4, 1e-2, 1.0)
#: The largest number of rows and columns of a map that the probe uses.
CELLS = 14


def all_measures(subject: InspectedModel, images: Tensor, seed: int = 0) -> list[Picture]:
    """All measures that apply to a model.

    Args:
        subject: the model.
        images: (B, C, H, W), sides multiples of the last map's stride.
        seed: of the crops.
    """
    pictures = [attention_distance_picture(subject, images), shift_error_picture(subject, images),
                position_probe_picture(subject, images, seed)]
    return [each for each in pictures if each is not None]


def attention_distance_picture(subject: InspectedModel, images: Tensor) -> Picture | None:
    """The picture of mean attention distance by layer and head (ViT, Dosovitskiy et al., ICLR 2021,
    Fig. 7)."""
    hw_shape = (images.shape[-2], images.shape[-1])
    calls = subject.calls(images)
    if not calls:
        return None
    heads = [mean_attention_distances(call, hw_shape).tolist() for call in calls]
    means = [fmean(each) for each in heads]
    return Picture(
        'attention_distance', 'How far a cell looks: the mean distance between a query and its '
        'keys, weighted by attention, without class tokens; the line is the mean of the heads, and '
        'each dot one head.',
        lambda: draw_line(means, 'attention layer, in order', 'attention distance, pixels', heads),
        {'means': means, 'heads': dict(zip([call.name for call in calls], heads,
                                               strict=True))})


def mean_attention_distances(call: AttentionCall, hw_shape: tuple[int, int]) -> Tensor:
    """The mean over queries i of sum_j a_ij |p_i - p_j| / sum_j a_ij, in pixels, (heads,).

    Zeros that fill up windows have no place and are left out, as are prefix tokens.

    Args:
        call: one call of attention.
        hw_shape: (H, W) of the images in pixels.
    """
    queries, keys = call.query_and_key_places()
    cell = torch.tensor([side / cells for side, cells in
                         zip(hw_shape, call.whole_map_shape, strict=True)])
    apart = ((queries[:, :, None] - keys[:, None]) * cell).norm(dim=-1)  # (windows, L, Lk)
    real = call.cell_of_each_query >= 0
    prefix = call.num_prefix_tokens
    weights = call.weights[:, :, prefix:, prefix:].float().cpu()
    weights = weights.unflatten(0, (-1, len(apart)))  # (B, windows, heads, L, Lk)
    if call.windows is not None:
        weights = weights * real[:, None, None]
    total = weights.sum(-1)
    reach = (weights * apart[:, None]).sum(-1) / total
    counted = real[:, None].expand_as(reach) & (total > 0)
    return torch.where(counted, reach, 0.0).sum((0, 1, 3)) / counted.sum((0, 1, 3))


def shift_error_picture(subject: InspectedModel, images: Tensor) -> Picture | None:
    """The picture of ||f(x rolled) - f(x) rolled|| / ||f(x)|| over the shift, in cells of the last
    map."""
    still = subject.maps(images)
    cells = min(list(still.values())[-1].shape[-2:])
    if cells < 2:
        return None
    stride = images.shape[-2] // list(still.values())[-1].shape[-2]
    shifts = range(1, 1 + max(1, min(3, cells // 3)))
    errors: dict[str, list[float]] = {name: [] for name in still}
    for shift in shifts:
        pixels = shift * stride
        moved = subject.maps(images.roll((pixels, pixels), (-2, -1)))
        for name, values in still.items():
            step = pixels * values.shape[-2] // images.shape[-2]
            rolled = values.roll((step, step), (-2, -1))
            errors[name].append(float((moved[name] - rolled).norm() / values.norm()))
    first = [each[0] for each in errors.values()]
    return Picture(
        'shift_error', 'How much the tokens change, as a share of their norm, when the picture is '
        f'rolled by {stride} pixels, one cell of the last map: 0 means that nothing depends on '
        'absolute position.',
        lambda: draw_line(first, 'map, in order', 'error under shifts, share of the norm'),
        {'pixels': [shift * stride for shift in shifts], 'errors': errors})


def position_probe_picture(subject: InspectedModel, images: Tensor, seed: int = 0) -> Picture:
    """The picture of R2 of a linear probe for row and column after each block (after Islam et al.,
    ICLR 2020)."""
    crops = random_crops(images, sum(CROPS), seed)
    parts: dict[str, list[Tensor]] = {}
    for part in crops.split(8):
        for name, values in subject.maps(part).items():
            parts.setdefault(name, []).append(_subsampled_cells(values))
    scores = {name: position_r_squared(torch.cat(each)) for name, each in parts.items()}
    means = [fmean(each) for each in scores.values()]
    return Picture(
        'position_probe', "How well a linear function of one token predicts the token's row and "
        'column on test crops (R2, their mean): 1 means exactly, 0 or less not at all.',
        lambda: draw_line(means, 'map, in order', 'linear probe of positions, R2'),
        {'means': means, 'row_and_column': scores})


def ridge_weights(x: Tensor, y: Tensor, penalty: float) -> Tensor:
    """The weights (C, T) that minimise ||y - x w||^2 / n + penalty |w|^2, for x (n, C) and y (n,
    T)."""
    gram = x.T @ x / len(x) + penalty * torch.eye(x.shape[1], dtype=x.dtype, device=x.device)
    return torch.linalg.solve(gram, x.T @ y / len(x))


def r_squared(predicted: Tensor, wanted: Tensor) -> Tensor:
    """R2 (T,) of predictions (n, T): 1 - residual / variance; NaN for a constant target."""
    residual = (wanted - predicted).square().sum(0)
    return 1 - residual / (wanted - wanted.mean(0)).square().sum(0)


def position_r_squared(tokens: Tensor, splits: Sequence[int] = CROPS) -> tuple[float, float]:
    """R2 of a linear probe for row and column.

    Args:
        tokens: (crops, C, H, W): crops to fit, then to choose the penalty, then to test.
        splits: number of crops of each kind.

    Returns:
        R2 of rows and of columns; NaN for a map of one row (column).
    """
    height, width = tokens.shape[-2:]
    rows, columns = torch.meshgrid(*((torch.arange(side, dtype=torch.float64) + 0.5) / side
                                     for side in (height, width)), indexing='ij')
    places = torch.stack((rows.flatten(), columns.flatten()), 1)  # (H * W, 2)
    cells = tokens.double().cpu().permute(0, 2, 3, 1).flatten(1, 2)  # (crops, H * W, C)
    parts = [(part.flatten(0, 1), places.repeat(len(part), 1)) for part in cells.split(splits)]
    (x, y), (x_choice, y_choice), (x_test, y_test) = parts
    mean, scale = x.mean(0), x.std(0)
    scale = torch.where(scale > 1e-12 * mean.abs().clamp(min=1e-12), scale, 1.0)
    x, x_choice, x_test = ((each - mean) / scale for each in (x, x_choice, x_test))
    centre = y.mean(0)
    weights = [ridge_weights(x, y - centre, penalty) for penalty in PENALTIES]
    scores = torch.stack([r_squared(x_choice @ w + centre, y_choice) for w in weights])
    best = scores.nan_to_num(-torch.inf).argmax(0)  # (2,): for rows and for columns
    chosen = torch.stack([weights[index][:, target] for target, index in
                          enumerate(best.tolist())], 1)
    row, column = r_squared(x_test @ chosen + centre, y_test).tolist()
    return row, column


def random_crops(images: Tensor, count: int, seed: int) -> Tensor:
    """Random crops of images in turn, resized to the size of the images, so that what a crop shows
    does not depend on the place.

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
        share, at_row, at_column, flip_row, flip_column = torch.rand(
            5, generator=generator).tolist()
        height, width = (max(1, round(side * (0.5 + share / 2))) for side in size)
        top, left = (round((side - part) * at) for side, part, at in
                     zip(size, (height, width), (at_row, at_column), strict=True))
        crop = images[index * len(images) // count, :, top:top + height, left:left + width]
        dims = [dim for dim, draw in ((-2, flip_row), (-1, flip_column)) if draw < 0.5]
        crops.append(F.interpolate(crop.flip(dims)[None], size, mode='bilinear',
                                   align_corners=False))
    return torch.cat(crops)


def _subsampled_cells(values: Tensor) -> Tensor:
    """At most CELLS rows and columns of a map (B, C, H, W), spread evenly."""
    cells = torch.tensor(reference_cells((values.shape[-2], values.shape[-1]), CELLS),
                         device=values.device)  # (rows, columns, 2)
    return values[..., cells[:, :1, 0], cells[:1, :, 1]]
