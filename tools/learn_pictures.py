"""Draw the pictures of docs/learn.md: docs/images/sizes.png and docs/images/learn/.

    mmposenc prepare mnist5k
    python tools/learn_pictures.py

They show one digit in 4 x 4 cells, and what the classes do to that grid and to one of 8 x 8. The
accuracies are those of docs/studies/digits-long.csv (`benchmarks/digits_long.py`).
"""
import csv
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import torch

from mmposenc.encodings import PEG, LearnedPositionEmbedding, RelativePositionBias, RotaryEmbedding

ROOT = Path(__file__).resolve().parents[1]
SIZES = {'0.75x': 0.75, '1x (trained)': 1.0, '1.5x': 1.5, '2x': 2.0, '3x': 3.0}
#: By the name of the study: label, and colour.
SHOWN = {'gta': ('GTA', '#0072b2'), 'rotary-shares': ('RoPE, shares (DINOv3)', '#56b4e9'),
         'learned': ('learned table', '#e69f00'), 'peg': ('PEG', '#d55e00'),
         'rotary': ('RoPE, cells', '#009e73'), 'none': ('no encoding', '#777777')}
CELL = 7  # pixels: 4 x 4 cells in a digit of 28 x 28
LINES = '#56b4e9'


def read_digit() -> np.ndarray:
    images = np.fromfile(ROOT / 'data/mnist5k/t10k-images-idx3-ubyte', np.uint8, offset=16)
    return images.reshape(-1, 28, 28)[401]


def shuffled(image: np.ndarray, generator: np.random.Generator) -> np.ndarray:
    """The image with its cells in another order."""
    side = len(image) // CELL
    cells = image.reshape(side, CELL, side, CELL).swapaxes(1, 2).reshape(-1, CELL, CELL)
    cells = cells[generator.permutation(len(cells))]
    return cells.reshape(side, side, CELL, CELL).swapaxes(1, 2).reshape(image.shape)


def show(axis: Any, values: Any, title: str, side: int = 4, **options: Any) -> None:
    """A map or a picture in ``side`` x ``side`` cells, whose coordinates are those of cells."""
    axis.imshow(values, extent=(-0.5, side - 0.5, side - 0.5, -0.5), interpolation='nearest',
                **{'cmap': 'RdBu_r', **options})
    lines = np.arange(side + 1) - 0.5
    axis.hlines(lines, -0.5, side - 0.5, color=LINES, linewidth=1)
    axis.vlines(lines, -0.5, side - 0.5, color=LINES, linewidth=1)
    axis.set_title(title)
    axis.axis('off')


def show_digit(axis: Any, digit: np.ndarray, title: str, texts: Any = None) -> None:
    """The digit in grey; ``texts`` gives the words of a cell from its row and column."""
    show(axis, 255 - digit / 3, title, cmap='gray', vmin=0, vmax=255)
    for row, col in np.ndindex((4, 4) if texts else (0, 0)):
        axis.text(col, row, texts(row, col), ha='center', va='center')


def absolute(axes: Any, digit: np.ndarray) -> None:
    table = LearnedPositionEmbedding(1, (4, 4))
    torch.nn.init.normal_(table.pos_embed)
    show_digit(axes[0], digit, 'each cell has a vector', lambda row, col: f'p{4 * row + col}')
    for axis, side, title in zip(axes[1:], (4, 8), (
            'a number of each vector', 'resized to 8 x 8 cells'), strict=True):
        added = table(torch.zeros(1, side * side, 1), (side, side))
        show(axis, added.detach().view(side, side), title, side, vmin=-2, vmax=2)


def relative(axes: Any, digit: np.ndarray) -> None:
    bias = RelativePositionBias(1, window_size=(4, 4))
    torch.nn.init.normal_(bias.relative_position_bias_table)
    nothing = torch.zeros(1, 1, 16, 8)
    added = bias.logits(nothing, nothing, (4, 4))[0, 0].detach().view(4, 4, 4, 4)
    show_digit(axes[0], digit, 'offsets from the star', lambda row, col: (
        '' if row == col == 1 else f'{row - 1:+d},{col - 1:+d}'.replace('+0', '0')))
    for axis, star in zip(axes, ((1, 1), (1, 1), (2, 2)), strict=True):
        if axis is not axes[0]:
            show(axis, added[star], 'added to the logits', vmin=-2, vmax=2)
        axis.plot(*star, '*', color='black', markersize=12)


def hand(axis: Any, row: float, col: float, angle: float, colour: str) -> None:
    """A clock in a cell."""
    axis.add_patch(plt.Circle((col, row), 0.4, fill=False, color='#777777'))
    axis.annotate('', (col + 0.4 * np.sin(angle), row - 0.4 * np.cos(angle)), (col, row),
                  arrowprops=dict(
        arrowstyle='-|>', color=colour, linewidth=2, shrinkA=0, shrinkB=0))


def rotary(axes: Any, digit: np.ndarray) -> None:
    encoding = RotaryEmbedding(4, 1)
    upright = torch.tensor([1., 0., 1., 0.]).expand(1, 1, 16, 4)
    turned = encoding.rotate(upright, upright, (4, 4))[0].view(16, 2, 2)
    angles = torch.atan2(turned[..., 1], turned[..., 0]).view(4, 4, 2)  # by column, by row
    for axis, plane, title in zip(axes, (0, 1), ('pair turned by the column',
                                                 'pair turned by the row'), strict=False):
        show_digit(axis, digit, title)
        for row, col in np.ndindex(4, 4):
            chosen = (row, col) in ((1, 1), (2, 3))
            hand(axis, row, col, float(angles[row, col, plane]),
                 '#d55e00' if chosen else '#bbbbbb')
    angles = torch.linspace(0, 7, 100)
    axes[2].plot(angles, angles.cos(), label='pair 0')
    axes[2].plot(angles, (angles / 10).cos(), label='pair 1')
    axes[2].set(title='product of two equal vectors', xlabel='offset, in cells')
    axes[2].axvspan(3, 7, color='#eeeeee')
    axes[2].text(5, 0.05, 'not in\ntraining', ha='center')
    axes[2].legend(frameon=False, loc='lower left')


def conditional(axes: Any, digit: np.ndarray) -> None:
    peg = PEG(1)
    show_digit(axes[0], digit, 'what two cells read')
    for row, col in ((1, 2), (0, 0)):
        axes[0].add_patch(plt.Rectangle((col - 1.5, row - 1.5), 3, 3, fill=False, linewidth=2,
                                        color='#d55e00'))
        axes[0].plot(col, row, '*', color='black', markersize=12)
    axes[0].set(xlim=(-1.6, 3.6), ylim=(3.6, -1.6))
    axes[0].text(-1, -1, '0', ha='center', va='center')
    for axis, side in zip(axes[1:], (4, 8), strict=True):
        added = peg(torch.ones(1, side * side, 1), (side, side)) - 1
        show(axis, added.detach().view(side, side), 'added to a blank image', side)


def sizes(axes: Any, digit: np.ndarray) -> None:
    with (ROOT / 'docs/studies/digits-long.csv').open() as file:
        study = {row['name']: row for row in csv.DictReader(file)}
    for axis, image, title in zip(axes, (digit, shuffled(digit, np.random.default_rng(0))),
                                  ('an image', 'its cells, shuffled'), strict=False):
        show(axis, 255 - image, title, cmap='gray')
    for name, (label, colour) in SHOWN.items():
        values = [float(study[name][size].split()[0]) for size in SIZES]
        axes[2].plot(list(SIZES.values()), values, marker='o', color=colour, label=label)
    axes[2].set(xlabel='side of the test images, as a multiple of the training size',
                ylabel='accuracy, %', title='digits: one model, five encodings and none')
    axes[2].grid(alpha=0.3)
    axes[2].legend(frameon=False, fontsize='small')


def main() -> None:
    digit = read_digit()
    for draw, wide in ((sizes, 2.2), (absolute, 1), (relative, 1), (rotary, 1.4), (conditional, 1)):
        torch.manual_seed(0)
        figure, axes = plt.subplots(1, 3, figsize=(3 * (2 + wide), 3.2), width_ratios=(1, 1, wide),
                                    layout='constrained')
        draw(axes, digit)
        name = 'sizes' if draw is sizes else f'learn/{draw.__name__}'
        figure.savefig(ROOT / f'docs/images/{name}.png', dpi=110)


if __name__ == '__main__':
    main()
