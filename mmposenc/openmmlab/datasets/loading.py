"""Loading images: errors name the image, and truncated files are refused."""
from __future__ import annotations

import io

import mmengine.fileio as fileio
from mmcv.transforms import LoadImageFromFile as _LoadImageFromFile
from mmengine.dataset import BaseDataset

from mmposenc.terminal.messages import error_text

from .image_files import message_without_file, size_if_whole


class NamedErrors(BaseDataset):
    """A mixin for OpenMMLab's data sets: errors of the pipeline name the image.

    Without it an image that a step cannot process (one pixel high and scaled to none, a truncated
    label map) raises an error inside OpenCV, PIL or torch that names no file.

    Raises:
        ValueError: a step of the pipeline failed; it names the image.
    """

    def prepare_data(self, idx: int) -> object:
        try:
            return super().prepare_data(idx)
        except Exception as error:
            info = self.get_data_info(idx)
            text, names = error_text(error), [str(info.get(key)) for key in
                                              ('img_path', 'seg_map_path') if info.get(key)]
            if any(name in text for name in names):
                raise
            raise ValueError(f'{" with ".join(names)}: {text}') from error


# This part of the file reads images.


class LoadImageFromFile(_LoadImageFromFile):
    """mmcv's LoadImageFromFile, which refuses truncated files.

    OpenCV decodes half a JPEG to an image whose rest is grey, and training would use it. With
    ``ignore_empty=True`` such an image is skipped (training draws another one).

    Raises:
        ValueError: the image is broken; it names the file and what is wrong.
    """

    def transform(self, results: dict) -> dict | None:
        path = results['img_path']
        try:
            size_if_whole(io.BytesIO(fileio.get(path, backend_args=self.backend_args)))
            return super().transform(results)
        # mmcv's assertion, if a decoder returns nothing, as for pixels of 32 bits.
        except AssertionError:
            problem = f'imdecode_backend={self.imdecode_backend!r} cannot decode it'
        except Exception as error:  # OpenCV and mmcv may raise anything.
            problem = message_without_file(error)
        if self.ignore_empty:
            return None
        raise ValueError(f'broken image {path}: {problem}')
