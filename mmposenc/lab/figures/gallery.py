"""A page of all figures that suit a model, and of other models drawn into the same folder."""
from __future__ import annotations

import json
import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from mmengine.config import Config

from mmposenc.engine.config.checks import check_folder

from .encoding_figures import draw_suiting
from .figure_subjects import build_subject
from .paper_figures import Choice
from .suits import encodings_of, suiting

#: What a model's folder says of its figures, from which the page is made.
NOTES = 'figures.json'
_HEAD = """# Gallery of encodings

All figures that suit each model, drawn by `mmposenc figures --gallery`, one call a model. What a
figure shows is said where it first appears.
"""


def draw_gallery(cfg: Config, checkpoint: str | None, folder: str | Path, *, command: str,
                 name: str | None = None, page: str | Path | None = None,
                 image: str | None = None, size: Sequence[int] | None = None,
                 choice: Choice | None = None) -> list[Path]:
    """Draws all figures that suit a model, and writes the page of all models in the folder.

    Args:
        cfg, checkpoint, image, size: as :func:`.encoding_figures.visualize_encodings`.
        folder: PNG files and a note of them go into ``folder/name``, in place of what an earlier
            call left there.
        command: what was typed, for the page.
        name: of the model, its heading; None: the config's.
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
    subject, _ = build_subject(cfg, checkpoint, image, size, whole=True)
    own = folder / name
    figures = [figure for each in suiting(subject)
               for figure in draw_suiting(subject, each, own, checkpoint is None, choice)]
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
        parts += [f'## {note["name"]}\n', f'{_about(note)}\n', f'    {note["command"]}\n']
        for figure in note['figures']:
            link = Path(os.path.relpath(path.parent / figure['file'], relative_to)).as_posix()
            parts.append(f'![{figure["title"]}]({link})\n')
            text = figure['text'].partition(' Model: ')[0]  # the model stands above its figures
            parts.append(f'*{figure["title"]}.*' + ('\n' if text in said else f' {text}\n'))
            said.add(text)
    return '\n'.join(parts)


def _about(note: dict[str, Any]) -> str:
    weights = 'untrained, random weights' if note['weights'] is None else (
        f'weights `{note["weights"]}`')
    encodings = ', '.join(f'`{each}`' for each in note['encodings']) or 'none'
    image = 'noise' if note['image'] is None else f'`{note["image"]}`'
    return (f'`{note["model"]}` of `{note["config"]}`, encodings: {encodings}; {weights}; image: '
            f'{image}, input {note["size"][0]} x {note["size"][1]}.')
