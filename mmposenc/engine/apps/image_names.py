"""Names for what is written for an image of a data set, such as its picture and its label map.

A name is the path of the image below the folder of its data set, without its suffix. Two images
never share one: where they would, the later of them gets a number.
"""
from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from mmengine.dataset import BaseDataset

from mmposenc.openmmlab.datasets.wrapped import unwrapped_datasets

#: The largest number of bytes in a name, so that with '_2', '.jpg' and '.partial' it stays below
#: 255.
_LONGEST = 230


def paths_and_names(dataset: BaseDataset, indices: Iterable[int] | None = None
                    ) -> list[tuple[str, str]]:
    """The path of each image of a data set, and a name for what is written for it.

    Args:
        dataset: a data set or a wrapper, with its annotations read.
        indices: the numbers of the images; None: all. An image that occurs twice has the same name
            both times.

    Returns:
        For each image its path as the data set has it ('' if the image is in no file), and its
        name. The name is the path without its suffix, below the folder of the data set, or below
        the folder that contains several data sets. An image that is in no file has its number as
        name.
    """
    numbers = range(len(dataset)) if indices is None else list(indices)
    paths = [str(dataset.get_data_info(number).get('img_path') or '') for number in numbers]
    folders = [folder for folder in map(_image_folder, unwrapped_datasets(dataset)) if folder]
    root = _common_folder([os.path.abspath(path) for path in paths if path], folders)
    taken: set[str] = set()
    names: dict[str, str] = {}
    named = []
    for number, path in zip(numbers, paths, strict=True):
        name = names.get(path) if indices is None and path else None
        if name is None:
            relative = Path(os.path.relpath(os.path.abspath(path), root) if path else str(number))
            name = names[path] = take_unused_name(name_without_suffix(relative), taken)
        named.append((path, name))
    return named


def _image_folder(dataset: BaseDataset) -> str:
    """The folder of a data set's images."""
    prefix = getattr(dataset, 'data_prefix', None) or {}
    prefix = prefix if isinstance(prefix, dict) else {'img_path': prefix}
    keys = [key for key in ('img', 'img_path', 'sub_data_root') if prefix.get(key)]
    folder = prefix[keys[0]] if keys else getattr(dataset, 'data_root', None)
    return os.path.abspath(folder) if isinstance(folder, str) and folder else ''


def _common_folder(paths: list[str], folders: list[str]) -> str:
    """The folder that contains the data sets' folders of these images, and no other images."""
    bases = {next((folder for folder in folders if path.startswith(f'{folder}{os.sep}')),
                  os.path.dirname(path)) for path in paths}
    return os.path.commonpath(bases) if bases else os.path.abspath(os.curdir)


def name_without_suffix(relative: Path) -> str:
    """A path with slashes and without its suffix; its last part is cut where it is very long."""
    last = os.fsencode(relative.stem)
    if len(last) > _LONGEST:
        relative = relative.with_name(last[:_LONGEST].decode(errors='ignore') + '.cut')
    return relative.with_suffix('').as_posix()


def take_unused_name(name: str, taken: set[str]) -> str:
    """The name, with a number if it is taken already. The returned name counts as taken."""
    candidate, number = name, 1
    while candidate in taken:
        number += 1
        candidate = f'{name}_{number}'
    taken.add(candidate)
    return candidate
