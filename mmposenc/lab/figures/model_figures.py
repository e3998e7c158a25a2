"""Figures of all of a model's encodings: what they add to the logits, and where a query attends."""
from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from torch import Tensor, nn

from mmposenc.encodings import IRPE, PEG

from .irpe_figures import bucket_panels
from .maps import Array
from .panels import Panel, draw_panels, save_figure
from .pool_figures import (
    draw_context_pool,
    draw_size_distributions,
    record_context_pools,
    size_distributions,
    write_size_distributions,
)
from .recording import AttentionRecord, record_attention
from .subjects import Choice, Subject, head_names, place_in_words
from .token_figures import added_of, kernels_of, record_contributions

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def draw_encodings(model: nn.Module, image: Tensor, output_dir: str | Path, *,
                   at: tuple[float, float] = (0.5, 0.5),
                   run: Callable[[], object] | None = None, source: str = '') -> list[Path]:
    """Run a model on an image and draw every attention of this project inside it.

    For each layer a figure of the attention weights, head by head and their mean, and, with an
    encoding on the logits, one of what it adds; for each different iRPE one of its buckets; for
    each token encoding one of what it adds to the tokens; for each PEG its kernels; for each
    ContextPool one of its weights and sizes, and one of all layers' sizes.

    Args:
        model: a backbone, called with ``image``, or a detector.
        image: (1, 3, H, W), as the model takes it.
        output_dir: where the figures go: ``attention_<layer>.png``, ``logits_<layer>.png``,
            ``buckets_<method>_<H>x<W>.png``, ``added_<place>.png``,
            ``kernels_<place>.png``, ``context_pool_<layer>.png``,
            ``context_pool_sizes.png`` and ``.csv``.
        at: where the query lies, as fractions of height and width.
        run: one pass of a model that takes more than the image.
        source: which files the model is from, for the titles.

    Returns:
        The files written.

    Raises:
        ValueError: if neither attention nor a ContextPool of this project ran.
    """
    subject = Subject(model, run or (lambda: model(image)), source)
    with (record_attention(model, at) as records, record_context_pools(model, at) as pools,
          record_contributions(model) as tokens):
        subject.run_once()
    if not records and not pools and not tokens:
        raise ValueError(f'{type(model).__name__} runs no attention of mmposenc.attention: there '
                         f'is nothing to draw')
    folder, modules = Path(output_dir), dict(model.named_modules())
    written: dict[Path, None] = {}  # a layer may run twice

    def write(figure: Figure, name: str) -> None:
        file = re.sub(r'\W+', '_', name)
        written[save_figure(figure, folder / f'{file}.png')] = None

    buckets: dict[str, tuple[IRPE, AttentionRecord]] = {}
    for record in records:
        about = f'{record.window_text}\n{source}' if source else record.window_text
        where = place_in_words(record.name)
        write(draw_panels(attention_panels(record), title=f'Attention in {where}{about}'),
              f'attention_{record.name}')
        if record.terms is not None:
            panels = _by_head(record, record.terms, 'added to the logit', diverging=True)
            write(draw_panels(panels, title=f'Added to the logits in {where}{about}'),
                  f'logits_{record.name}')
        encoding = getattr(modules[record.name], 'rel_pos_encoding', None)
        if isinstance(encoding, IRPE):
            grids = dict.fromkeys((record.hw_shape, record.key_shape))  # one, or two
            shapes = '_to_'.join('x'.join(map(str, each)) for each in grids)
            buckets.setdefault(f'buckets_{encoding.method}_{shapes}', (encoding, record))
    for name, pair in buckets.items():
        write(draw_panels(bucket_panels(*pair), title=f'Buckets\n{source}'), name)
    low, high = image.min(), image.max()
    picture = ((image[0] - low) / (high - low).clamp_min(1e-6)).permute(1, 2, 0)
    picture = picture.expand(-1, -1, 3) if picture.shape[2] == 1 else picture[..., :3]
    subject.picture = picture.cpu().numpy()
    for token in tokens:
        write(added_of(subject, token, Choice()).figure, f'added_{token.name}')
        peg = modules[token.name]
        if isinstance(peg, PEG):
            write(kernels_of(subject, token.name, peg, Choice()).figure, f'kernels_{token.name}')
    for pool in pools:
        write(draw_context_pool(pool, subject.picture), f'context_pool_{pool.name}')
    if rows := size_distributions(pools):
        write(draw_size_distributions(rows), 'context_pool_sizes')
        written[write_size_distributions(rows, folder / 'context_pool_sizes.csv')] = None
    return list(written)


def attention_panels(record: AttentionRecord) -> list[Panel]:
    """Mean over the heads, then each head; the only head once."""
    unit = 'attention weight'
    if len(record.weights) == 1:
        return [Panel('one head', record.weights[0], record.key_cell, unit=unit)]
    mean = Panel('mean of the heads', record.weights.mean(0), record.key_cell, unit=unit)
    return [mean, *_by_head(record, record.weights, unit)]


def _by_head(record: AttentionRecord, maps: Array, unit: str, diverging: bool = False
             ) -> list[Panel]:
    return [Panel(name, values, record.key_cell, diverging, unit=unit)
            for name, values in zip(head_names(maps), maps, strict=True)]
