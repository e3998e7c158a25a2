"""Draw docs/images/sizes.png: what an encoding does, from a digit and from a study.

    mmposenc prepare mnist5k
    python tools/sizes_picture.py

The accuracies are those of docs/studies/digits-long.csv (`benchmarks/digits_long.py`).
"""
import csv
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

ROOT = Path(__file__).resolve().parents[1]
SIZES = {'0.75x': 0.75, '1x (trained)': 1.0, '1.5x': 1.5, '2x': 2.0, '3x': 3.0}
#: By the name of the study: label, and colour.
SHOWN = {'gta': ('GTA', '#0072b2'), 'learned': ('learned table', '#e69f00'),
         'peg': ('PEG', '#d55e00'), 'rotary': ('rotary', '#009e73'),
         'none': ('no encoding', '#777777')}
CELL = 7  # pixels: 4 x 4 cells in a digit of 28 x 28


def shuffled(image: np.ndarray, generator: np.random.Generator) -> np.ndarray:
    """The image with its cells in another order."""
    side = len(image) // CELL
    cells = image.reshape(side, CELL, side, CELL).swapaxes(1, 2).reshape(-1, CELL, CELL)
    cells = cells[generator.permutation(len(cells))]
    return cells.reshape(side, side, CELL, CELL).swapaxes(1, 2).reshape(image.shape)


def main() -> None:
    images = np.fromfile(ROOT / 'data/mnist5k/t10k-images-idx3-ubyte', np.uint8, offset=16)
    digit = images.reshape(-1, 28, 28)[401]
    with (ROOT / 'docs/studies/digits-long.csv').open() as file:
        study = {row['name']: row for row in csv.DictReader(file)}
    figure, axes = plt.subplots(1, 3, figsize=(10, 3.2), width_ratios=(1, 1, 2.2))
    for axis, image, title in zip(axes, (digit, shuffled(digit, np.random.default_rng(0))),
                                  ('an image', 'its cells, shuffled'), strict=False):
        axis.imshow(255 - image, cmap='gray')
        for line in range(0, 29, CELL):
            axis.axhline(line - 0.5, color='#56b4e9', linewidth=1)
            axis.axvline(line - 0.5, color='#56b4e9', linewidth=1)
        axis.set_title(title)
        axis.axis('off')
    figure.text(0.25, 0.06, 'Without an encoding, a transformer\ngives both the same answer.',
                ha='center', va='center')
    for name, (label, colour) in SHOWN.items():
        values = [float(study[name][size].split()[0]) for size in SIZES]
        axes[2].plot(list(SIZES.values()), values, marker='o', color=colour, label=label)
    axes[2].set_xlabel('side of the test images, as a multiple of the training size')
    axes[2].set_ylabel('accuracy, %')
    axes[2].set_title('digits: one model, five encodings')
    axes[2].grid(alpha=0.3)
    axes[2].legend(frameon=False)
    figure.subplots_adjust(left=0.02, right=0.99, bottom=0.17, top=0.9, wspace=0.3)
    figure.savefig(ROOT / 'docs/images/sizes.png', dpi=130)


if __name__ == '__main__':
    main()
