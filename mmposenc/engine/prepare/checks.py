"""Parts of the checks of a local data set copy: they read and report, and never change anything."""
from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from pathlib import Path

from PIL import Image


def find_folder(root: Path, relative: str, problems: list[str]) -> Path | None:
    """``root``/``relative`` if it is a folder; otherwise a problem that says where it lies."""
    folder = root / relative
    if folder.is_dir():
        return folder
    problems.append(_absent('folder', root, relative, Path.is_dir))
    return None


def find_file(root: Path, relative: str, problems: list[str]) -> Path | None:
    """``root``/``relative`` if it is a file that is not empty; otherwise a problem."""
    path = root / relative
    if path.is_file():
        if path.stat().st_size:
            return path
        problems.append(f'{path} is empty')
        return None
    problems.append(_absent('file', root, relative, Path.is_file))
    return None


def _absent(kind: str, root: Path, relative: str, is_kind: Callable[[Path], bool]) -> str:
    """'missing', or 'misplaced' when it lies up to three folders deeper, or a file elsewhere.

    A folder is known by its whole relative path: 'training' alone could be another one.
    """
    tails = [relative] if kind == 'folder' else [relative, Path(relative).name]
    found = [path for tail in tails for depth in ('', '*/', '*/*/', '*/*/*/')
             for path in sorted(root.glob(depth + tail)) if is_kind(path)]
    if not found:
        return f'{kind} {root / relative} is missing'
    return f'{kind} {root / relative} is misplaced: it is at {found[0]}'


def compare_names(what: str, folder: Path, present: Collection[str], expected: Collection[str],
                  problems: list[str]) -> None:
    """Report names of ``expected`` that ``folder`` lacks, and names nothing refers to."""
    missing = sorted(set(expected) - set(present))
    extra = sorted(set(present) - set(expected))
    if missing:
        problems.append(f'{folder} lacks {len(missing)} of {len(expected)} {what}: '
                        f'{_some(missing)}')
    if extra:
        problems.append(f'{folder} holds {len(extra)} files that are not among the {what}: '
                        f'{_some(extra)}')


def compare_count(what: str, place: Path, count: int, expected: int, problems: list[str]) -> None:
    """Report a wrong number of files or entries."""
    if count != expected:
        problems.append(f'{place} has {count} {what}, expected {expected}')


def list_files(folder: Path) -> list[str]:
    """Names of the visible files of a folder, sorted."""
    return sorted(p.name for p in folder.iterdir() if p.is_file() and not p.name.startswith('.'))


def open_images(paths: Iterable[Path], problems: list[str]) -> list[Image.Image]:
    """The pictures, decoded; each that can't be decoded is a problem."""
    images = []
    for path in paths:
        try:
            with Image.open(path) as image:
                image.load()
                images.append(image.copy())
        except Exception as error:  # PIL raises what the codec raises, and for too many pixels
            problems.append(f'{path} can not be read as a picture: {error}')
    return images


def _some(names: list[str], limit: int = 3) -> str:
    return ', '.join(names[:limit]) + (', ...' if len(names) > limit else '')
