"""Kernels of PEGs, what token encodings add, and how alike the positions of an encoding are."""
from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from mmposenc.encodings import PEG
from mmposenc.encodings.base import TokenEncoding
from mmposenc.functional.grids import as_grid
from mmposenc.functional.masking import split_prefix

from .maps import Array
from .panels import Drawable, Panel, tile_axes, tile_sheet, tile_ticks
from .photo_figures import bare, overlay
from .recording import record_attention, watched
from .subjects import Choice, Drawing, Subject, pick, place_in_words, reference_cells


@dataclass
class TokenRecord:
    """What one token encoding added in the first image.

    name: of the module. hw_shape: (H, W). added: (H * W, C), its output minus its input.
    lengths: (H * W,), the norms of the tokens that it was given.
    """

    name: str
    hw_shape: tuple[int, int]
    added: Array
    lengths: Array


@contextmanager
def record_contributions(model: nn.Module) -> Iterator[list[TokenRecord]]:
    """Record what every token encoding that runs inside ``model`` adds to the tokens.

    Yields:
        The list that records are added to, in the order in which the encodings run. Those that
        change the grid add nothing and are left out.
    """
    records: list[TokenRecord] = []

    def note(name: str, module: TokenEncoding, given: dict[str, Any], out: Tensor) -> None:
        grid = as_grid(given['hw_shape'])
        before, after = (split_prefix(x[:1].detach(), given.get('num_prefix_tokens', 0))[1]
                         for x in (given['x'], out))
        if before.shape == after.shape:
            added = (after - before)[0].float().cpu().numpy()
            lengths = before[0].float().norm(dim=1).cpu().numpy()
            records.append(TokenRecord(name, grid.hw, added, lengths))

    # mypy: TokenEncoding is abstract, and is only compared with.
    with watched(model, TokenEncoding, note):  # type: ignore[type-abstract]
        yield records


def draw_kernels(subject: Subject, choice: Choice) -> Drawing:
    """The kernels of one PEG, a sheet for each of its layers (CPVT's first version, Fig. 7).

    Raises:
        ValueError: for a model without a PEG, or a block out of range.
    """
    pegs = [(name, module) for name, module in subject.model.named_modules()
            if isinstance(module, PEG)]
    return kernels_of(subject, *pick(pegs, choice.block, [each for each, _ in pegs], 'PEGs'),
                      choice)


def kernels_of(subject: Subject, name: str, peg: PEG, choice: Choice) -> Drawing:
    """The kernels of a PEG inside the model, by its name there."""
    panels, arrays = [], {}
    for layer, kernels in enumerate(peg_kernels(peg)):
        columns = kernels.shape[1]
        if peg.conv == 'dense':
            labels, rows = ('output channel', 'input channel'), range(len(kernels))
        else:
            # About 4 : 3, 16 x 12 of the 192 kernels of DeiT-Ti.
            columns = math.ceil(math.sqrt(columns * 4 / 3))
            kernels = _wrapped(kernels[0], columns)
            labels = ('first channel of the row', 'channel, from the first of the row')
            rows = range(0, len(kernels) * columns, columns)
        side = peg.kernel_size
        panels.append(Panel(
            f'layer {layer}', tile_sheet(kernels), diverging=True, unit='weight',
            ylabel=labels[0], xlabel=labels[1], yticks=tile_ticks(rows, side),
            xticks=tile_ticks(range(columns), side)))
        arrays[f'kernels_{layer}'] = kernels
    title = (f'{side} x {side} kernels of the {type(peg).__name__}, '
             f'{place_in_words(name)} ({peg.conv}, {peg.embed_dims} channels)')
    pointwise = '\n(its 1 x 1 convolutions are not shown)' if peg.conv == 'separable' else ''
    return subject.drawing(panels, f'{title}{pointwise}', choice, arrays, columns=2,
                           cell_inches=5.0)


def peg_kernels(peg: PEG) -> list[Array]:
    """Kernels of every layer: (1, C, k, k), or (C, C, k, k) of a dense PEG."""
    convolutions = [layer for layer in peg.proj if isinstance(layer, nn.Conv2d)]
    if peg.conv == 'separable':
        convolutions = convolutions[::2]
    weights = [layer.weight.detach().float().cpu().numpy() for layer in convolutions]
    return weights if peg.conv == 'dense' else [each.swapaxes(0, 1) for each in weights]


def _wrapped(kernels: Array, columns: int) -> Array:
    """(N, k, k) in rows of ``columns``, the last one filled up with NaN."""
    filled = np.pad(kernels, ((0, -len(kernels) % columns), (0, 0), (0, 0)), constant_values=np.nan)
    wrapped: Array = filled.reshape(-1, columns, *kernels.shape[1:])
    return wrapped


def draw_added(subject: Subject, choice: Choice) -> Drawing:
    """What one token encoding adds to the tokens of the photo: its length (the norm over channels)
    on the photo, that as a share of the tokens' own, and some channels as maps (what CPVT's PEG
    makes of an image, ICLR 2023, Sec. 3).

    Channels are those that are asked for, or the three that vary most from cell to cell.

    Raises:
        ValueError: for a model without token encodings that add something, or a block or channel
            out of range.
    """
    found = subject.recorded(record_contributions)
    record = pick(found, choice.block, [each.name for each in found],
                  'token encodings that keep the grid')
    return added_of(subject, record, choice)


def added_of(subject: Subject, record: TokenRecord, choice: Choice) -> Drawing:
    """The figure of one record, see :func:`draw_added`."""
    channels = list(choice.channels)
    if not channels:
        channels = np.argsort(-record.added.std(0), kind='stable')[:3].tolist()
    most = record.added.shape[1]
    if not all(0 <= each < most for each in channels):
        raise ValueError(f'channels={channels} must be from 0 to {most - 1}')
    maps = record.added[:, channels].T.reshape(-1, *record.hw_shape)
    norms = np.linalg.norm(record.added, axis=1)
    norm, share = (each.reshape(record.hw_shape)
                   for each in (norms, norms / record.lengths.clip(1e-12)))
    panels: list[Drawable] = [
        bare(subject), overlay(subject, 'norm over channels', norm, unit='norm'),
        overlay(subject, "share of the token's norm", share, unit='share')]
    panels += [Panel(f'channel {channel}', values, diverging=True, unit='added')
               for channel, values in zip(channels, maps, strict=True)]
    return subject.drawing(
        panels, f'Added to the tokens: {place_in_words(record.name)}', choice,
        dict(norm=norm, share=share, channels=np.array(channels), maps=maps), columns=3)


def draw_similarity(subject: Subject, choice: Choice) -> Drawing:
    """Cosine similarity between the positions of one encoding, a tile for each reference cell (the
    AI Summer article on position embeddings; ViT, Fig. 7).

    A token encoding's position of a cell is what it adds to the cell's token: its table, or a PEG's
    convolution. That of a relative encoding is all that it adds to the cell's logits, every head
    and key. ``block`` counts token encodings first, then attention with a relative encoding.

    Raises:
        ValueError: for a model without encodings that add something, or a block out of range.
    """
    with record_contributions(subject.model) as tokens, record_attention(subject.model) as layers:
        subject.run_once()
    relative = [place for place, each in enumerate(layers) if each.terms is not None]
    names = [each.name for each in tokens] + [layers[place].name for place in relative]
    name = pick(names, choice.block, names, 'encodings that add to tokens or logits')
    if choice.block < len(tokens):
        hw_shape, where = tokens[choice.block].hw_shape, ''
        vectors, what = tokens[choice.block].added, 'added to the tokens'
    else:
        record = subject.attention(relative[choice.block - len(tokens)], choice.place)
        assert record.all_terms is not None
        prefix, hw_shape, where = record.num_prefix_tokens, record.hw_shape, record.window_text
        by_cell = record.all_terms[:, prefix:, prefix:].swapaxes(0, 1)
        vectors, what = by_cell.reshape(len(by_cell), -1), 'added to the logits'
    cells = reference_cells(hw_shape, 14 if choice.references is None else choice.references)
    index = [[row * hw_shape[1] + col for row, col in line] for line in cells]
    maps = cosine_similarity(vectors)[np.array(index)].reshape(*np.shape(index), *hw_shape)
    panel = Panel(f'{place_in_words(name)}: {what}', tile_sheet(maps), limits=(-1.0, 1.0),
                  diverging=True, unit='cosine similarity', **tile_axes(cells, hw_shape))
    title = (f'Similarity of {len(cells)} x {len(cells[0])} cells to all '
             f'{hw_shape[0]} x {hw_shape[1]}')
    return subject.drawing([panel], title, choice, dict(maps=maps, cells=np.array(cells)),
                           where=where, cell_inches=5.0)


def cosine_similarity(vectors: Array, others: Array | None = None) -> Array:
    """(L, L) cosines of (L, C), or (L, N) with others (N, C); 0 for a vector of zeros."""
    first, second = (functional.normalize(torch.from_numpy(each).double(), eps=1e-300)
                     for each in (vectors, vectors if others is None else others))
    found: Array = (first @ second.T).clamp(-1.0, 1.0).numpy()
    return found
