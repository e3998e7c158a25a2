"""Figures of the encodings of the model of a config, and a gallery of all that suit it."""
from __future__ import annotations

import dataclasses
import json
import math
import os
import re
import textwrap
from collections.abc import Callable, Sequence
from itertools import zip_longest
from pathlib import Path
from typing import Any

import mmcv
import numpy as np
from mmengine.config import Config
from mmengine.registry import init_default_scope
from torch import Tensor, nn

from mmposenc.engine.config.checks import check_checkpoint, check_folder
from mmposenc.engine.config.models import (
    as_inputs,
    build_bare,
    check_pictures,
    image_samples,
    load_weights,
    noise,
    read_picture,
)
from mmposenc.engine.config.nodes import usual_size
from mmposenc.engine.config.testing import scope_of

from . import save_figure
from .model_figures import draw_encodings
from .panels import checked_path
from .paper_figures import FIGURES, Choice, Subject, Suiting, draw_figure, encodings_of, suiting
from .subjects import NothingToShow, encoding_in_words, place_in_words

#: Longer side of a photo as figures draw it, in pixels.
_DRAWN = 800


def build_subject(cfg: Config, checkpoint: str | None, image: str | None,
                  size: Sequence[int] | None, *, whole: bool = False, title: str | None = None,
                  ) -> tuple[Subject, Tensor]:
    """What figures are drawn of: a backbone or a whole DETR with its image, and its input.

    Args:
        cfg: a config of mmdet, mmseg or mmpretrain.
        checkpoint: weights of the whole model; None leaves them random, the same each time.
        image: a picture, resized and normalised as the config says; None is noise.
        size: (H, W) of the input; one number is the shorter side, and the longer one follows the
            picture, both rounded to multiples of :func:`cell_side`; None is
            :func:`.config_sizes.usual_size`, of a picture as many whole cells as fit into it.
        whole: refuse a picture that is no whole number of cells, on which they would not lie where
            they are drawn.
        title: the model's name in titles; None: its architecture and encodings in words. A title
            says if weights are random.

    Raises:
        ValueError: a size below 1 or refused, a checkpoint that does not fit, or no picture.
        FileNotFoundError: no such image or checkpoint.
    """
    if size is not None and (len(size) not in (1, 2) or min(size) < 1):
        raise ValueError(f'size={tuple(size)} must be at least (1, 1): height and width, or the '
                         f'shorter side')
    check_pictures([] if image is None else [image])
    if checkpoint is not None:
        check_checkpoint(checkpoint, 'checkpoint')
    init_default_scope(scope_of(cfg))
    pixels = None if image is None else read_picture(cfg, image)
    model: Any = build_bare(cfg)
    side = cell_side(model)
    shape = input_size(cfg, size, None if pixels is None else pixels.shape[:2], side)
    if whole and pixels is not None and any(each % side for each in shape):
        raise ValueError(f'size={shape} must be multiples of {side}, the side of a cell in the '
                         f'coarsest map or what images are padded to, so that cells lie where the '
                         f'photo shows them; --size with one number takes the nearest')
    inputs = noise(cfg, shape) if pixels is None else as_inputs(cfg, [pixels], shape)
    if checkpoint is not None:
        load_weights(model, checkpoint)
    drawn, run = pass_of(model, inputs)
    picture = None if pixels is None else _picture(pixels)
    source = (title or model_in_words(drawn)) + (
        ', untrained (random weights)' if checkpoint is None else '')
    return Subject(drawn, run, source, picture, shape), inputs


def model_in_words(model: nn.Module) -> str:
    """An architecture and its encodings, for titles: 'PVT with PEG and iRPE'."""
    encodings = ' and '.join(encoding_in_words(each) for each in encodings_of(model))
    return f'{type(model).__name__} {f"with {encodings}" if encodings else "without encodings"}'


def source_of(cfg: Config, checkpoint: str | None) -> str:
    """The files a model is from, for titles."""
    file = Path(cfg.filename).name if cfg.filename else 'config'
    return f'{file}, {"untrained" if checkpoint is None else Path(checkpoint).name}'


def pass_of(model: Any, inputs: Tensor) -> tuple[nn.Module, Callable[[], object]]:
    """What of a model figures are drawn of, its backbone or all of a DETR, and a pass of it."""
    if isinstance(getattr(model, 'encoder', None), nn.Module):
        return model, lambda: model(inputs, image_samples(inputs), mode='tensor')
    return model.backbone, lambda: model.backbone(inputs)


def cell_side(model: Any) -> int:
    """Pixels that the sides of an image must be multiples of so that no map of a model holds cells
    in part, nor its preprocessor pads: the side of a cell in the coarsest map, 32 where nothing
    says it, and what images are padded to."""
    backbone, side = model.backbone, 32
    if hasattr(backbone, 'patch_sizes'):
        side = math.prod(backbone.patch_sizes)
    elif hasattr(backbone, 'patch_size'):
        # A pyramid halves its map from stage to stage.
        stages: Sequence[Any] = getattr(backbone, 'stages', ())
        side = int(backbone.patch_size * 2 ** max(len(stages) - 1, 0))
    preprocessor = getattr(model, 'data_preprocessor', None)
    padded = [getattr(preprocessor, name, None) for name in ('pad_size_divisor', 'size_divisor')]
    return math.lcm(side, *(int(each) for each in padded if each))


def input_size(cfg: Config, size: Sequence[int] | None, photo: Sequence[int] | None, side: int
               ) -> tuple[int, int]:
    """(H, W) of the input, see :func:`build_subject`.

    Args:
        photo: (h, w) of the picture; None has the aspect 1.
        side: of a cell.
    """
    if size is None:
        size = usual_size(cfg)
        if photo is not None:  # whole cells, and no more than tables are made for
            size = [max(1, each // side) * side for each in size]
    if len(size) == 2:
        return int(size[0]), int(size[1])
    shorter, sides = size[0], photo or (1, 1)
    found = [max(1, round(shorter * each / min(sides) / side)) * side for each in sides]
    return found[0], found[1]


def _picture(pixels: np.ndarray) -> np.ndarray:
    """(h, w, 3) red first, from 0 to 1."""
    longest = max(pixels.shape[:2])
    if longest > _DRAWN:
        pixels = mmcv.imrescale(pixels, _DRAWN / longest)
    colors = pixels[..., ::-1] if pixels.ndim == 3 else np.repeat(pixels[..., None], 3, 2)
    return colors / 255.0


#: Figures that put cells on the photo, so that the photo must be whole cells.
ON_PHOTO = ('overlay', 'rollout', 'added', 'pools')
#: How many :func:`figures_of` draws, and how many of them show an encoding.
_FEW, _OF_ENCODINGS = 4, 3
#: Inches and pixels an inch of a figure on a page.
_PAGE_WIDTH, _PANEL_WIDTH, _PAGE_DPI, _GALLERY_DPI = 7.0, 4.5, 110, 160
_ONE_PANEL = ('attention', 'cost', 'index', 'kernels', 'references', 'similarity', 'sizes')
#: Tiles of a sheet of similarities along a side: 14 of a large grid are a page by themselves.
_PAGE_REFERENCES = 8


def visualize_encodings(cfg: Config, checkpoint: str | None, output_dir: str | Path, *,
                        image: str | None = None, size: Sequence[int] | None = None,
                        at: tuple[float, float] = (0.5, 0.5),
                        title: str | None = None) -> list[Path]:
    """Builds the model of a config and draws its encodings.

    Args:
        cfg: a config of mmdet, mmseg or mmpretrain.
        checkpoint: weights of the whole model; None leaves them random.
        output_dir: where the figures go; see :func:`mmposenc.lab.figures.draw_encodings`.
        image, size, title: see :func:`.encoding_figures.build_subject`.
        at: where the query lies, as fractions of height and width.

    Returns:
        The files written.

    Raises:
        ValueError: a checkpoint that does not fit, a model without attention of this project, or a
            size below 1.
        FileNotFoundError: no such image or checkpoint.
    """
    check_folder(str(output_dir), '--output-dir')
    subject, inputs = build_subject(cfg, checkpoint, image, size, title=title)
    return draw_encodings(subject.model, inputs, output_dir, at=at, run=subject.run,
                          source=subject.source)


def visualize_figure(name: str, sources: Sequence[tuple[Config, str | None]], out: str | Path, *,
                     choice: Choice, image: str | None = None, size: Sequence[int] | None = None,
                     save_arrays: str | Path | None = None, dpi: float = 160,
                     titles: Sequence[str] = ()) -> list[Path]:
    """Draws one figure of the papers, see :data:`mmposenc.lab.figures.paper_figures.FIGURES`.

    Args:
        name: of the figure.
        sources: configs, each with a checkpoint or None for random weights.
        out: the file; its suffix says the format.
        choice: which part of the model, and the width of the figure.
        image, size: as :func:`visualize_encodings`, the same for all models.
        save_arrays: an .npz file for the numbers that the figure shows.
        dpi: pixels an inch.
        titles: a name for each model; else its architecture and encodings, with the files where two
            would be the same.

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
    subjects = [build_subject(cfg, checkpoint, image, size, whole=name in ON_PHOTO, title=title)[0]
                for (cfg, checkpoint), title in zip_longest(sources, titles)]
    names = [each.source for each in subjects]
    for subject, (cfg, checkpoint) in zip(subjects, sources, strict=True):
        if names.count(subject.source) > 1:
            subject.source += f'\n{source_of(cfg, checkpoint)}'
    drawing = draw_figure(name, subjects, choice)
    written = [save_figure(drawing.figure, path, dpi=dpi)]
    if arrays is not None:
        arrays.parent.mkdir(parents=True, exist_ok=True)
        np.savez_compressed(arrays, **drawing.arrays)
        written.append(arrays)
    return written


def figures_of(cfg: Config, checkpoint: str | None, folder: str | Path,
               image: str | None = None, *, size: Sequence[int] | None = None,
               title: str | None = None) -> list[dict[str, Any]]:
    """Draws a few figures that suit a model's encodings, for a page: at most three of encodings,
    the first layer of each, and attention on the photo.

    Args:
        cfg, checkpoint, image, size, title: as :func:`build_subject`.
        folder: where the PNG files go.

    Returns:
        For each of at most four figures its 'title', 'file' (a path), 'text' (what is seen, for
        those who do not see it) and 'untrained' (whether the weights are random).

    Raises:
        ValueError: as :func:`visualize_encodings`; a size that is no whole number of cells.
        FileNotFoundError: no such image or checkpoint.
    """
    subject, _ = build_subject(cfg, checkpoint, image, size, whole=True, title=title)
    once: dict[str, Suiting] = {}
    for each in suiting(subject):
        once.setdefault(each.figure, each)
    drawn: list[dict[str, Any]] = []
    for each in once.values():
        if len(drawn) < (_OF_ENCODINGS if each.encoding else _FEW):
            drawn += draw_suiting(subject, each, Path(folder), checkpoint is None)
    return drawn


def draw_suiting(subject: Subject, suits: Suiting, folder: Path, untrained: bool,
                 choice: Choice | None = None, dpi: float = _PAGE_DPI) -> list[dict[str, Any]]:
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
    path = save_figure(drawing.figure, folder / f'{suits.figure}_{suits.block}.png', dpi,
                       small=True)
    figure = FIGURES[suits.figure]
    kinds = [encoding_in_words(each) for each in suits.encoding.split(' + ') if each]
    about = ', '.join([' + '.join(kinds), place_in_words(suits.name)][not kinds:])
    return [dict(title=f'{figure.title}: {about}', file=str(path), untrained=untrained,
                 text=f'{figure.seen} Model: {subject.source}.')]


def check_sizes(width: float | None, dpi: float) -> None:
    """Refuse a figure without a size.

    Raises:
        ValueError: for a width or dpi that is not positive, or a width below an inch.
    """
    if width is not None and not 1.0 <= width <= 50.0:
        raise ValueError(f'width={width} must be from 1 to 50 inches')
    if not 10 <= dpi <= 2400:
        raise ValueError(f'dpi={dpi} must be from 10 to 2400 pixels an inch')


#: What a model's folder says of its figures, from which the page is made.
NOTES = 'figures.json'
_HEAD = """# Gallery of encodings

Figures that suit each model, drawn by `mmposenc figures --gallery`, one call for each model. The
text below a figure is not repeated where the same figure appears again.
"""


def draw_gallery(cfg: Config, checkpoint: str | None, folder: str | Path, *, command: str,
                 name: str | None = None, title: str | None = None, page: str | Path | None = None,
                 image: str | None = None, size: Sequence[int] | None = None,
                 choice: Choice | None = None) -> list[Path]:
    """Draws all figures that suit a model, and writes the page of all models in the folder.

    Args:
        cfg, checkpoint, image, size: as :func:`.encoding_figures.visualize_encodings`.
        folder: PNG files and a note of them go into ``folder/name``, in place of what an earlier
            call left there.
        command: what was typed, for the page.
        name: of the model, its heading; None: the config's.
        title: see :func:`build_subject`.
        page: the Markdown file, with all models of ``folder`` by name; None: its ``gallery.md``.
        choice: places on the photo, and the number of reference cells.

    Returns:
        The files written, the page last.

    Raises:
        ValueError: a name that is no folder's; a page that is no ``.md``; as
            :func:`.encoding_figures.figures_of`.
        FileNotFoundError: no such image or checkpoint.
    """
    name = name or (Path(cfg.filename).stem if cfg.filename else 'model')
    if not re.fullmatch(r'[\w.+-]*\w[\w.+-]*', name):
        raise ValueError(f'name={name!r} must be letters, digits and . _ + -: it is a folder too')
    folder = Path(folder)
    written_to = folder / 'gallery.md' if page is None else Path(page)
    if written_to.suffix != '.md' or written_to.is_dir():
        raise ValueError(f'page={str(page)!r} must be a file that ends in .md')
    check_folder(str(folder), '--gallery')
    check_folder(str(written_to.parent), '--page')
    subject, _ = build_subject(cfg, checkpoint, image, size, whole=True, title=title)
    own = folder / name
    figures = [figure for each in suiting(subject)
               for figure in draw_suiting(subject, each, own, checkpoint is None, choice,
                                           _GALLERY_DPI)]
    kept = {Path(figure['file']).name for figure in figures}
    for old in own.glob('*_*.png'):
        if old.name not in kept:
            old.unlink()
    note = dict(
        name=name, command=command, model=type(subject.model).__name__,
        encodings=encodings_of(subject.model),
        config=Path(cfg.filename).name if cfg.filename else None,
        weights=None if checkpoint is None else Path(checkpoint).name,
        image=None if image is None else Path(image).name, size=subject.size,
        figures=[{**figure, 'file': Path(figure['file']).name} for figure in figures])
    own.mkdir(parents=True, exist_ok=True)
    (own / NOTES).write_text(json.dumps(note, indent=1) + '\n')
    written_to.parent.mkdir(parents=True, exist_ok=True)
    written_to.write_text(page_text(folder, written_to.parent))
    return [own / figure for figure in sorted(kept)] + [written_to]


def page_text(folder: Path, relative_to: Path) -> str:
    """The page of all models whose notes lie in ``folder``, with links from ``relative_to``."""
    parts = [_HEAD]
    said: set[str] = set()
    for path in sorted(folder.glob(f'*/{NOTES}')):
        note = json.loads(path.read_text())
        command = _lines(note['command'])
        parts += [f'## {note["name"]}\n', f'{_about(note)}\n', f'```bash\n{command}\n```\n']
        for figure in note['figures']:
            link = Path(os.path.relpath(path.parent / figure['file'], relative_to)).as_posix()
            parts.append(f'![{figure["title"]}]({link})\n')
            text = figure['text'].partition(' Model: ')[0]  # the model stands above its figures
            parts.append(f'*{figure["title"]}.*' + ('\n' if text in said else f' {text}\n'))
            said.add(text)
    return '\n'.join(parts)


def _lines(command: str) -> str:
    """A command in lines that fit on a page."""
    lines = textwrap.wrap(command, 76, break_long_words=False, break_on_hyphens=False,
                          subsequent_indent='    ')
    return ' \\\n'.join(lines)


def _about(note: dict[str, Any]) -> str:
    weights = 'untrained, random weights' if note['weights'] is None else (
        f'weights `{note["weights"]}`')
    encodings = ', '.join(f'`{each}`' for each in note['encodings']) or 'none'
    image = 'noise' if note['image'] is None else f'`{note["image"]}`'
    return (f'`{note["model"]}` of `{note["config"]}`, encodings: {encodings}; {weights}; image: '
            f'{image}, input {note["size"][0]} x {note["size"][1]}.')
