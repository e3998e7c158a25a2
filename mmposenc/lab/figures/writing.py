"""Figures as files."""
from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from matplotlib.figure import Figure

#: What a figure can be written as.
SUFFIXES = ('.png', '.pdf', '.svg')
#: Text that stays text: TrueType in PDF, and letters in SVG. Journals refuse Type 3 fonts.
RC = {'pdf.fonttype': 42, 'ps.fonttype': 42, 'svg.fonttype': 'none', 'svg.hashsalt': 'mmposenc'}


def checked_path(path: str | Path, argument: str, suffixes: tuple[str, ...] = SUFFIXES) -> Path:
    """The path of a file to write.

    Raises:
        ValueError: for another suffix, or a folder.
    """
    path = Path(path)
    if path.suffix not in suffixes:
        raise ValueError(f'{argument}={str(path)!r} must end in {", ".join(suffixes)}')
    if path.is_dir():
        raise ValueError(f'{argument}={str(path)!r} is a folder; a file is required')
    return path


def save_figure(figure: Figure, path: str | Path, dpi: float = 110, *, small: bool = False) -> Path:
    """Write a figure, by the suffix of ``path``, and make its folder.

    Letters are written as text in PDF and SVG, and no date, so that the same model drawn again
    gives the same file.

    Args:
        figure: the figure.
        path: the file.
        dpi: pixels an inch, of a PNG and of maps inside the others.
        small: a PNG of 256 colours, a third of the size or less, for pages.
    """
    from matplotlib import rc_context

    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    undated = {'.pdf': {'CreationDate': None}, '.svg': {'Date': None}}.get(path.suffix, {})
    with rc_context(RC):
        figure.savefig(path, dpi=dpi, metadata=undated)
    if small and path.suffix == '.png':
        from PIL import Image
        with Image.open(path) as picture:
            few = picture.convert('RGB').quantize(
                256, Image.Quantize.MAXCOVERAGE, dither=Image.Dither.NONE)
        few.save(path, optimize=True)
    return path
