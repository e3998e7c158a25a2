"""Errors of a pipeline that say which image they are about."""
from __future__ import annotations

import os
from typing import Any

import mmengine.fileio as fileio
from mmcv.transforms import LoadImageFromFile as _LoadImageFromFile

from mmposenc.command_line import describe

from .image_files import MAX_PIXELS, breaks_off, broken, check_file, reason


class NamedErrors:
    """Put before a data set of OpenMMLab in the list of bases.

    A step of a pipeline that meets what it can't do (an image one pixel high that is scaled to
    none, a label map that breaks off) raises from deep inside OpenCV, PIL or torch.

    Raises:
        ValueError: names the image.
    """

    def prepare_data(self, idx: int) -> Any:
        try:
            return super().prepare_data(idx)  # type: ignore[misc]
        except Exception as error:
            info = self.get_data_info(idx)  # type: ignore[attr-defined]
            text, names = describe(error), [str(info.get(key)) for key in
                                            ('img_path', 'seg_map_path') if info.get(key)]
            if any(name in text for name in names):
                raise
            raise ValueError(f'{" with ".join(names)}: {text}') from error


# Reading images.


class LoadImageFromFile(_LoadImageFromFile):
    """mmcv's LoadImageFromFile, refusing files that are cut short.

    OpenCV decodes half a JPEG to a picture whose rest is grey, and training goes on with it.
    With ``ignore_empty=True`` such an image is passed over (in training, another one is drawn).

    Args:
        max_pixels: more are refused before they are decoded.
        **kwargs: to mmcv's.

    Raises:
        ValueError: names the file and what is wrong with it.
    """

    def __init__(self, *args: Any, max_pixels: int = MAX_PIXELS, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.max_pixels = max_pixels

    def transform(self, results: dict) -> dict | None:
        path = results['img_path']
        problem, loaded = '', None
        try:
            if os.path.exists(path):  # not of another storage
                check_file(path)
            data = fileio.get(path, backend_args=self.backend_args)
            problem = broken(data, self.max_pixels)
            if not problem:
                loaded = super().transform(results)
                if loaded is not None and breaks_off(data, loaded['img']):
                    problem = 'it breaks off in the middle, and an end marker follows'
        except Exception as error:  # OpenCV and mmcv raise what they like
            problem = reason(error)
        if not problem:
            return loaded
        if self.ignore_empty:
            return None
        raise ValueError(f'broken image {path}: {problem}')
