"""What iRPE's contextual mode costs, by the size of the image."""
from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from mmposenc.encodings import IRPE

from .figures import HEADING, fit, plot_figure
from .recording import AttentionRecord, record_attention
from .subjects import Choice, Drawing, NothingToShow, Subject, find_encoding, run_once

#: Sides of the image, times that of the input.
SCALES = (0.5, 1.0, 1.5, 2.0, 2.5, 3.0)


def draw_cost(subjects: Sequence[Subject], choice: Choice) -> Drawing:
    """Multiply-accumulates that iRPE adds to all layers, by buckets and by pairs of tokens (iRPE,
    Fig. 4).

    By arithmetic from the grids of one pass: cells grow as the square of the side. The model
    itself takes the form by buckets.

    Raises:
        ValueError: for a model without a contextual iRPE over whole images.
    """
    subject = subjects[0]
    with record_attention(subject.model) as records:
        run_once(subject)
    # A window has as many tokens in any image.
    layers = [(record, found) for record in records if record.window is None
              and (found := find_encoding(subject, record, IRPE)) is not None
              and found.mode == 'contextual']
    if not layers:
        raise NothingToShow("the model has no IRPE with mode='contextual' over whole images: "
                            "this figure has nothing to show")
    costs = {name: np.array([sum(extra_macs(record, encoding, scale, pairs)
                                 for record, encoding in layers) for scale in SCALES])
             for name, pairs in (('buckets', False), ('pairs', True))}
    figure, axes = plot_figure(choice.width, f'What iRPE on {layers[0][1].rpe_on} adds, '
                                             f'{len(layers)} layers\n{subject.source}')
    for name, label, color, marker in (
            ('pairs', 'a product for each pair of tokens', '#D55E00', 'x'),
            ('buckets', 'a product for each token and bucket', '#0072B2', 'o')):
        axes.plot(SCALES, costs[name] / 1e9, color=color, marker=marker, markersize=4, label=label)
    height, width = layers[0][0].hw_shape
    label = f'side, times that of {height} x {width} cells in {layers[0][0].name}'
    axes.set_xlabel(fit(label, 0.8 * figure.get_figwidth(), HEADING), fontsize=HEADING)
    axes.set_ylabel('further multiply-accumulates, 10^9', fontsize=HEADING)
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
