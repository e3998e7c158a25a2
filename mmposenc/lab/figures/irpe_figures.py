"""iRPE's index function, the buckets of its four methods, and what its contextual mode costs."""
from __future__ import annotations

import numpy as np
import torch

from mmposenc.encodings import IRPE
from mmposenc.functional.buckets import BucketParams, index_function

from .maps import Array, bucket_map
from .panels import HEADING, Panel, color_categories, plot_figure
from .recording import AttentionRecord, record_attention
from .subjects import Choice, Drawing, NothingToShow, Subject

#: Method, quantization and name of each map, in the order of iRPE's Figures 6 to 9.
KINDS = (('euclidean', 'squared', 'euclidean'),
         ('quantization', 'rank', 'quantization by rank (paper)'),
         ('quantization', 'squared', 'quantization by square (release)'),
         ('cross', 'squared', 'cross'),
         ('product', 'squared', 'product'))


def draw_index_function(subject: Subject, choice: Choice) -> Drawing:
    """The piecewise index function next to the clip function (iRPE, Fig. 2), with the parameters of
    a model's iRPE.

    Raises:
        ValueError: if the layer has no iRPE.
    """
    record = subject.attention(choice.block)
    params = irpe_of(subject, record).params
    offsets = np.arange(-int(1.25 * params.gamma), int(1.25 * params.gamma) + 1)
    x = torch.from_numpy(offsets)
    curves = {name: index_function(x, params._replace(function=name)).numpy()
              for name in ('piecewise', 'clip')}
    figure, axes = plot_figure(choice.width, f'Index functions, {_text(params)}\n{subject.source}',
                               'offset x, cells', 'index')
    for name, label, color, marker in (('piecewise', 'piecewise g(x)', '#0072B2', 'o'),
                                       ('clip', 'clip h(x)', '#D55E00', 'x')):
        axes.step(offsets, curves[name], where='mid', color=color, marker=marker, markersize=3,
                  linewidth=1, label=label)
    axes.legend(fontsize=HEADING)
    return Drawing(figure, dict(offsets=offsets, **curves))


def draw_buckets(subject: Subject, choice: Choice) -> Drawing:
    """The buckets of all four methods for some reference cells (iRPE, Fig. 6 to 9), on the grid
    and with the parameters of a model's iRPE; by default the first cell and the middle one.

    Raises:
        ValueError: if the layer has no iRPE, or a place lies outside.
    """
    places = choice.places or ((0.0, 0.0), (0.5, 0.5))
    records = [subject.attention(choice.block, at) for at in places]
    encoding = irpe_of(subject, records[0])
    columns, arrays = [], {}
    for method, quantization, name in KINDS:
        params = encoding.params._replace(quantization=quantization)
        maps = [buckets_at(method, params, record) for record in records]
        for axis in maps[0]:
            title = f'{name}, {axis}' if axis else name
            column = [each[axis] for each in maps]
            colors = color_categories(column)
            columns.append([Panel(title, values, record.key_cell, colors=color)
                            for values, record, color in zip(column, records, colors,
                                                             strict=True)])
            arrays[title] = np.stack(column)
    panels = [column[row] for row in range(len(records)) for column in columns]
    title = (f'Buckets of a query (star), {_text(encoding.params)}; '
             f'neighbouring buckets differ in colour, colours repeat')
    arrays['cells'] = np.array([record.cell for record in records])
    return subject.drawing(panels, title, choice, arrays, columns=len(columns), narrowest=1.1)


def buckets_at(method: str, params: BucketParams, record: AttentionRecord) -> dict[str, Array]:
    """Buckets (Hk, Wk) of one query by axis: '' alone, or 'rows' and 'columns' of 'cross'."""
    ids = bucket_map(method, record.hw_shape, record.cell, record.key_grid, alpha=params.alpha,
                     beta=params.beta, gamma=params.gamma, index=params.function,
                     quantization=params.quantization)
    return {'': ids} if ids.ndim == 2 else dict(zip(('rows', 'columns'), ids, strict=True))


def bucket_panels(encoding: IRPE, record: AttentionRecord) -> list[Panel]:
    """Buckets of an iRPE; for 'cross' those of the rows and those of the columns."""
    found = buckets_at(encoding.method, encoding.params, record)
    return [Panel(f'{encoding.method}, {axis}' if axis else encoding.method, ids, record.key_cell,
                  colors=color_categories([ids])[0]) for axis, ids in found.items()]


def irpe_of(subject: Subject, record: AttentionRecord) -> IRPE:
    """The iRPE of a layer.

    Raises:
        ValueError: if it has none.
    """
    found = subject.find_encoding(record, IRPE)
    if found is None:
        encoding = subject.encoding(record)
        kind = 'no relative encoding' if encoding is None else type(encoding).__name__
        raise NothingToShow(f'{record.name} has {kind}, which has no buckets: this figure needs '
                            f'an IRPE')
    return found


def _text(params: BucketParams) -> str:
    return f'alpha={params.alpha:g}, beta={params.beta:g}, gamma={params.gamma:g}'


#: Sides of the image, times that of the input.
SCALES = (0.5, 1.0, 1.5, 2.0, 2.5, 3.0)


def draw_cost(subject: Subject, choice: Choice) -> Drawing:
    """Multiply-accumulates that iRPE adds to all layers, by buckets and by pairs of tokens (iRPE,
    Fig. 4).

    By arithmetic from the grids of one pass: cells grow as the square of the side. The model
    itself takes the form by buckets.

    Raises:
        ValueError: for a model without a contextual iRPE over whole images.
    """
    records = subject.recorded(record_attention)
    # A window has as many tokens in any image.
    layers = [(record, found) for record in records if record.window is None
              and (found := subject.find_encoding(record, IRPE)) is not None
              and found.mode == 'contextual']
    if not layers:
        raise NothingToShow("the model has no IRPE with mode='contextual' over whole images: "
                            "this figure has nothing to show")
    costs = {name: np.array([sum(extra_macs(record, encoding, scale, pairs)
                                 for record, encoding in layers) for scale in SCALES])
             for name, pairs in (('buckets', False), ('pairs', True))}
    height, width = layers[0][0].hw_shape
    figure, axes = plot_figure(
        choice.width,
        f'What iRPE on {layers[0][1].rpe_on} adds, {len(layers)} layers\n{subject.source}',
        f'side, times that of {height} x {width} cells in {layers[0][0].name}',
        'further multiply-accumulates, 10^9')
    for name, label, color, marker in (
            ('pairs', 'a product for each pair of tokens', '#D55E00', 'x'),
            ('buckets', 'a product for each token and bucket', '#0072B2', 'o')):
        axes.plot(SCALES, costs[name] / 1e9, color=color, marker=marker, markersize=4, label=label)
    axes.set_yscale('log')
    axes.legend(fontsize=HEADING)
    return Drawing(figure, dict(scales=np.array(SCALES), **costs))


def extra_macs(record: AttentionRecord, encoding: IRPE, scale: float, pairs: bool) -> float:
    """Of one layer, on grids ``scale`` times as high and wide.

    By pairs Lq Lk C for each of queries, keys and values; by buckets tokens times buckets times C.
    """
    prefix = record.num_prefix_tokens
    queries, keys = (prefix + shape[0] * shape[1] * scale ** 2
                     for shape in (record.hw_shape, record.key_shape))
    channels = encoding.num_heads * encoding.head_dims
    if pairs:
        return len(encoding.rpe_on) * queries * keys * channels
    buckets = len(encoding.axes) * (encoding.num_buckets + (prefix > 0))
    return sum((keys if side == 'q' else queries) * buckets * channels
               for side in encoding.rpe_on)
