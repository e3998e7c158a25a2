"""Figures of the encodings of a model that a config describes."""
from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from mmengine.config import Config

from mmposenc.engine.config.checks import check_folder

from . import save_figure
from .captions import CAPTIONS
from .figure_subjects import build_subject
from .model_figures import draw_encodings
from .paper_figures import Choice, Subject, draw_figure
from .subjects import NothingToShow
from .suits import Suiting, suiting
from .writing import checked_path

#: Figures that put cells on the photo, so that the photo must be whole cells.
ON_PHOTO = ('overlay', 'rollout', 'added', 'pools')
#: How many :func:`figures_of` draws, and how many of them show an encoding.
_FEW, _OF_ENCODINGS = 4, 3
#: Inches and pixels an inch of a figure on a page.
_PAGE_WIDTH, _PANEL_WIDTH, _PAGE_DPI = 7.0, 4.5, 110
_ONE_PANEL = ('attention', 'cost', 'index', 'kernels', 'references', 'similarity', 'sizes')
#: Tiles of a sheet of similarities along a side: 14 of a large grid are a page by themselves.
_PAGE_REFERENCES = 8


def visualize_encodings(cfg: Config, checkpoint: str | None, output_dir: str | Path, *,
                        image: str | None = None, size: Sequence[int] | None = None,
                        at: tuple[float, float] = (0.5, 0.5)) -> list[Path]:
    """Builds the model of a config and draws its encodings.

    Args:
        cfg: a config of mmdet, mmseg or mmpretrain.
        checkpoint: weights of the whole model; None leaves them random.
        output_dir: where the figures go; see :func:`mmposenc.lab.figures.draw_encodings`.
        image, size: the input, see :func:`.figure_subjects.build_subject`.
        at: where the query lies, as fractions of height and width.

    Returns:
        The files written.

    Raises:
        ValueError: a checkpoint that does not fit, a model without attention of this project, or a
            size below 1.
        FileNotFoundError: no such image or checkpoint.
    """
    check_folder(str(output_dir), '--output-dir')
    subject, inputs = build_subject(cfg, checkpoint, image, size)
    return draw_encodings(subject.model, inputs, output_dir, at=at, run=subject.run,
                          source=subject.source)


def visualize_figure(name: str, sources: Sequence[tuple[Config, str | None]], out: str | Path, *,
                     choice: Choice, image: str | None = None, size: Sequence[int] | None = None,
                     save_arrays: str | Path | None = None, dpi: float = 160) -> list[Path]:
    """Draws one figure of the papers, see :data:`mmposenc.lab.figures.paper_figures.FIGURES`.

    Args:
        name: of the figure.
        sources: configs, each with a checkpoint or None for random weights.
        out: the file; its suffix says the format.
        choice: which part of the model, and the width of the figure.
        image, size: as :func:`visualize_encodings`, the same for all models.
        save_arrays: an .npz file for the numbers that the figure shows.
        dpi: pixels an inch.

    Returns:
        The files written.

    Raises:
        ValueError: as :func:`visualize_encodings`; a suffix that is no format; what the figure
            refuses; a size that is no whole number of cells, where they are drawn on the photo; a
            width or dpi that is not positive.
        FileNotFoundError: no such image or checkpoint.
    """
    path = checked_path(out, '--out')
    arrays = None if save_arrays is None else checked_path(save_arrays, '--save-arrays', ('.npz',))
    check_folder(str(path.parent), '--out')
    if arrays is not None:
        check_folder(str(arrays.parent), '--save-arrays')
    check_sizes(choice.width, dpi)
    subjects = [build_subject(cfg, checkpoint, image, size, whole=name in ON_PHOTO)[0]
                for cfg, checkpoint in sources]
    drawing = draw_figure(name, subjects, choice)
    written = [save_figure(drawing.figure, path, dpi=dpi)]
    if arrays is not None:
        arrays.parent.mkdir(parents=True, exist_ok=True)
        np.savez_compressed(arrays, **drawing.arrays)
        written.append(arrays)
    return written


def figures_of(cfg: Config, checkpoint: str | None, folder: str | Path,
               image: str | None = None, *, size: Sequence[int] | None = None
               ) -> list[dict[str, Any]]:
    """Draws a few figures that suit a model's encodings, for a page: at most three of encodings,
    the first layer of each, and attention on the photo.

    Args:
        cfg, checkpoint, image, size: as :func:`visualize_encodings`.
        folder: where the PNG files go.

    Returns:
        For each of at most four figures its 'title', 'file' (a path), 'text' (what is seen, for
        those who do not see it) and 'untrained' (whether the weights are random).

    Raises:
        ValueError: as :func:`visualize_encodings`; a size that is no whole number of cells.
        FileNotFoundError: no such image or checkpoint.
    """
    subject, _ = build_subject(cfg, checkpoint, image, size, whole=True)
    once: dict[str, Suiting] = {}
    for each in suiting(subject):
        once.setdefault(each.figure, each)
    drawn: list[dict[str, Any]] = []
    for each in once.values():
        if len(drawn) < (_OF_ENCODINGS if each.encoding else _FEW):
            drawn += draw_suiting(subject, each, Path(folder), checkpoint is None)
    return drawn


def draw_suiting(subject: Subject, suits: Suiting, folder: Path, untrained: bool,
                 choice: Choice | None = None) -> list[dict[str, Any]]:
    """One figure as a PNG for a page, see :func:`figures_of`; none where there is nothing to show.

    Args:
        choice: places and references; the block is that of ``suits``.
    """
    choice = choice or Choice()
    width = _PANEL_WIDTH if suits.figure in _ONE_PANEL else _PAGE_WIDTH
    if suits.figure == 'similarity' and choice.references is None:
        choice = dataclasses.replace(choice, references=_PAGE_REFERENCES)
    choice = dataclasses.replace(choice, block=suits.block, width=width)
    try:
        drawing = draw_figure(suits.figure, [subject], choice)
    except NothingToShow:
        return []
    path = save_figure(drawing.figure, folder / f'{suits.figure}_{suits.block}.png', _PAGE_DPI,
                       small=True)
    title, seen = CAPTIONS[suits.figure]
    about = f'{suits.encoding} in {suits.name}' if suits.encoding else suits.name
    return [dict(title=f'{title}: {about}', file=str(path), untrained=untrained,
                 text=f'{seen} Model: {subject.source}.')]


def check_sizes(width: float | None, dpi: float) -> None:
    """Refuse a figure without a size.

    Raises:
        ValueError: for a width or dpi that is not positive, or a width below an inch.
    """
    if width is not None and not 1.0 <= width <= 50.0:
        raise ValueError(f'width={width} must be from 1 to 50 inches')
    if not 10 <= dpi <= 2400:
        raise ValueError(f'dpi={dpi} must be from 10 to 2400 pixels an inch')
