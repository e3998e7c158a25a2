"""Errors of a pipeline that say which image they are about."""
from __future__ import annotations

from typing import Any

from mmposenc.command_line import describe


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
