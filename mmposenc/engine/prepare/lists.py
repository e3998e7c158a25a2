"""Reads lists of pictures, ``train.txt`` and ``val.txt``, which say to which part each picture
belongs."""
from __future__ import annotations

from pathlib import Path

from .labels import PART_LISTS, ROLES, LabelledFolder

#: For each format, the folder in ``ImageSets`` that has VOC's lists.
_VOC_FOLDERS = {'voc': 'Main', 'masks': 'Segmentation', 'yolo': 'Main'}


def parts_by_lists(kind: str, source: Path, labelled: LabelledFolder) -> dict[str, str]:
    """Which part each picture is of, by lists in the source or in VOC's ``ImageSets``.

    A line names a picture by its path, or without folder and suffix. A folder counts that has a
    list for training and one for validation.

    Args:
        kind: one of :data:`.labels.KINDS`.
        source: the folder.
        labelled: what it holds; lines that name no picture, and pictures of two parts, are added to
            its problems.

    Returns:
        'train', 'val' or 'test' by the ``key`` of a picture; empty without such lists.
    """
    parts: dict[str, str] = {}
    keys = {picture.key for picture in labelled.pictures}
    for folder in sorted({source, *source.rglob(f'ImageSets/{_VOC_FOLDERS[kind]}')}):
        lists = {name: part for name, part in PART_LISTS.items() if (folder / name).is_file()}
        if not {'train', 'val'} <= {*lists.values()}:
            continue
        # Keys of the pictures beside ImageSets begin with the folder that contains both.
        above = () if folder == source else folder.parent.parent.relative_to(source).parts
        for name, part in lists.items():
            _read_list(folder / name, part, above, keys, parts, labelled.problems)
    return parts


def _read_list(path: Path, part: str, above: tuple[str, ...], keys: set[str],
               parts: dict[str, str], problems: list[str]) -> None:
    text = path.read_text(encoding='utf-8-sig', errors='replace')
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip():
            continue
        key = _picture_key(above, line.strip(), keys)
        if key is None:
            problems.append(f'{path}:{number}: {line.strip()!r} is no picture that can be used')
        elif parts.setdefault(key, part) != part:
            problems.append(f'{path}:{number}: {line.strip()!r} is also in the list of '
                            f'{parts[key]}')


def _picture_key(above: tuple[str, ...], line: str, keys: set[str]) -> str | None:
    """The key of the picture that a line names. The path in the line may begin anywhere, and may
    have folders such as 'images', which keys leave out."""
    folders = line.replace('\\', '/').split('/')
    name = folders.pop()
    for stem in (name, name.rpartition('.')[0]):
        words = [*above, *(folder for folder in folders if folder.lower() not in ROLES), stem]
        for start in range(len(words)):
            if (key := '/'.join(words[start:])) in keys:
                return key
    return None
