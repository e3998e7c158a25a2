"""Loading images: errors name the image, and truncated files are refused."""
from __future__ import annotations

import io
import os
from collections.abc import Iterator

import cv2
import mmcv
import mmengine.fileio as fileio
import numpy as np
from mmcv.image.io import imread_flags
from mmcv.transforms import LoadImageFromFile as _LoadImageFromFile
from mmengine.dataset import BaseDataset
from mmengine.fileio import LocalBackend, register_backend
from PIL import Image

from mmposenc.terminal.messages import error_text

from ..logs import warn
from . import image_files
from .lists import check_list


@register_backend('local', prefixes='', force=True)
class LocalFiles(LocalBackend):
    """mmengine's access to files, which walks through folders as all of this project: links are
    followed, and each real folder is visited once, so that loops end."""

    def list_dir_or_file(self, dir_path: str, list_dir: bool = True, list_file: bool = True,
                         suffix: str | tuple[str, ...] | None = None, recursive: bool = False
                         ) -> Iterator[str]:
        if list_dir or not recursive:
            return super().list_dir_or_file(dir_path, list_dir, list_file, suffix, recursive)
        return iter([os.path.relpath(path, dir_path) for path in image_files.files_below(dir_path)
                     if path.endswith(suffix or '')])

    def get_text(self, filepath: str, encoding: str = 'utf-8') -> str:
        """The text of a file, without the byte order mark that Windows writes."""
        return super().get_text(filepath, 'utf-8-sig' if encoding == 'utf-8' else encoding)


fileio.io.backend_instances.clear()  # Those that were used before are mmengine's.


class NamedErrors(BaseDataset):
    """A mixin for OpenMMLab's data sets: errors of the pipeline name the image, and those of a
    list its line.

    Without it an image that a step cannot process (one pixel high and scaled to none, a truncated
    label map) raises an error inside OpenCV, PIL or torch that names no file.

    Args:
        check_images: whether to check files before training; each data set says which.

    Raises:
        ValueError: a step of the pipeline failed; it names the image.
    """

    def __init__(self, *args: object, check_images: bool = True, **kwargs: object) -> None:
        self.check_images = check_images
        super().__init__(*args, **kwargs)

    def load_data_list(self) -> list[dict]:
        if self.ann_file.endswith('.txt') and os.path.isfile(self.ann_file):
            check_list(self.ann_file, with_label=getattr(self, 'with_label', False),
                       suffix=getattr(self, 'img_suffix', ()) or ())
        return list(super().load_data_list())

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


class LoadImageFromFile(_LoadImageFromFile):
    """mmcv's LoadImageFromFile, which refuses truncated files.

    OpenCV decodes half a JPEG to an image whose rest is grey, and training would use it. With
    ``ignore_empty=True`` such an image is skipped (training draws another one).

    Two kinds of files are read otherwise than by mmcv. OpenCV ignores the EXIF orientation of a
    WebP. And of 16 bits it keeps the upper eight, so that pictures of 12 bits are nearly black:
    where no value reaches 4096, they are read as 12 bits, and a warning says so.

    Raises:
        ValueError: the image is broken; it names the file and what is wrong.
    """

    _warned = False

    def transform(self, results: dict) -> dict | None:
        path = results['img_path']
        try:
            image_files.refuse_pipe(path)
            content = fileio.get(path, backend_args=self.backend_args)
            image_files.size_if_whole(io.BytesIO(content))
            image = self._decoded(content, path)
            problem = f'imdecode_backend={self.imdecode_backend!r} cannot decode it'
        except Exception as error:  # OpenCV and mmcv may raise anything.
            image, problem = None, image_files.message_without_file(error)
        if image is None:  # A decoder returns nothing for pixels of 32 bits.
            if self.ignore_empty:
                return None
            raise ValueError(f'broken image {path}: {problem}')
        results['img'] = image.astype(np.float32) if self.to_float32 else image
        results['img_shape'] = results['ori_shape'] = image.shape[:2]
        return results

    def _decoded(self, content: bytes, path: str) -> np.ndarray | None:
        """What mmcv decodes, but for the two kinds of files."""
        flag, backend = self.color_type, self.imdecode_backend
        by_opencv = flag in ('color', 'grayscale') and backend == 'cv2'
        if by_opencv and content[8:12] == b'WEBP':
            with Image.open(io.BytesIO(content)) as picture:
                if image_files.ORIENTATION in picture.getexif():
                    backend = 'pillow'
        image: np.ndarray | None = mmcv.imfrombytes(content, flag=flag, backend=backend)
        if image is None or not by_opencv or image.max() > 15:
            return image
        deep = cv2.imdecode(np.frombuffer(content, np.uint8),
                            imread_flags[flag] | cv2.IMREAD_ANYDEPTH)
        if deep is None or deep.dtype != np.uint16:
            return image
        if not self._warned:
            self._warned = True
            warn(f'{path} has 16 bits, and no value above 4095: such pictures are read as 12 bits')
        return (deep >> 4).astype(np.uint8)
