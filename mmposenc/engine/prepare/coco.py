"""Check of a local COCO 2017 copy."""
from __future__ import annotations

import os
import re
from pathlib import Path

from mmposenc.openmmlab.datasets.image_files import sample

from .checks import compare_count, compare_names, find_file, find_folder, list_files, open_images

#: folder of the pictures, annotation file, number of pictures
PARTS = (('train2017', 'annotations/instances_train2017.json', 118_287),
         ('val2017', 'annotations/instances_val2017.json', 5_000))
_FILE_NAME = re.compile(rb'"file_name"\s*:\s*"([^"\\]+)"')


def check_coco(root: Path, parts: tuple[tuple[str, str, int], ...] = PARTS) -> list[str]:
    """What is missing, misplaced or unreadable in a COCO 2017 copy; empty when all is well.

    Looks at the folders, the annotation files, that each picture an annotation file names is there
    (and no other), and decodes a sample of the pictures. Changes nothing.

    Args:
        root: the folder that holds train2017, val2017 and annotations.
        parts: pictures, annotation file and number of pictures of each part.
    """
    problems: list[str] = []
    if not root.is_dir():
        return [f'{root} is not a folder']
    for folder_name, annotation_name, count in parts:
        folder = find_folder(root, folder_name, problems)
        annotation = find_file(root, annotation_name, problems)
        named = None
        if annotation:
            named, whole = annotated_names(annotation)
            if not whole:
                problems.append(f'{annotation} is cut off: it does not end with a closing brace')
            compare_count('images', annotation, len(named), count, problems)
        if not folder:
            continue
        present = list_files(folder)
        if not present:
            problems.append(f'{folder} is empty')
        elif named:
            compare_names('annotated pictures', folder, present, named, problems)
        else:
            compare_count('pictures', folder, len(present), count, problems)
        open_images((folder / name for name in sample(present)), problems)
    return problems


def annotated_names(path: Path, block_size: int = 1 << 24) -> tuple[set[str], bool]:
    """Picture names in a COCO file, and whether the file ends as JSON must.

    Read in blocks: as Python objects, the training annotations would take gigabytes.
    """
    names: set[str] = set()
    rest = b''
    with open(path, 'rb') as file:
        while block := file.read(block_size):
            text = rest + block
            names.update(os.fsdecode(match) for match in _FILE_NAME.findall(text))
            rest = text[-1024:]  # a name cut by the block's end is found with the next block
    return names, rest.rstrip().endswith(b'}')
