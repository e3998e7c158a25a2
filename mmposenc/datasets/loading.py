"""Reading images."""
from __future__ import annotations

import mmengine.fileio as fileio
from mmcv.transforms import LoadImageFromFile as _LoadImageFromFile

from .image_files import broken


class LoadImageFromFile(_LoadImageFromFile):
    """mmcv's LoadImageFromFile, refusing files that are cut short.

    OpenCV decodes half a JPEG to a picture whose rest is grey, and training goes on with it.
    With ``ignore_empty=True`` such an image is passed over (in training, another one is drawn).

    Raises:
        ValueError: names the file and what is wrong with it.
    """

    def transform(self, results: dict) -> dict | None:
        path = results['img_path']
        problem = broken(fileio.get(path, backend_args=self.backend_args))
        if not problem:
            return super().transform(results)
        if self.ignore_empty:
            return None
        raise ValueError(f'broken image {path}: {problem}')
