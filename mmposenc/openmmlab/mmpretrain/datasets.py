"""mmpretrain's data set of a folder a class, or of a list, with checks."""
from __future__ import annotations

from mmpretrain.datasets import CustomDataset as _CustomDataset

from ..datasets.image_files import refuse_broken
from ..datasets.loading import NamedErrors


class CustomDataset(NamedErrors, _CustomDataset):
    """mmpretrain's CustomDataset with checks of the files.

    mmpretrain stops at an empty line of a list in Python's words, and finds a broken image when it
    reaches it, which may be after an epoch.

    Args:
        check_images: check before training that every image file exists and is complete. It reads
            the beginning and the end of each file.
        **kwargs: arguments of mmpretrain's CustomDataset.

    Raises:
        ValueError: it names the list and its line, or the images.
    """

    def load_data_list(self) -> list[dict]:
        data_list: list[dict] = super().load_data_list()
        if self.check_images:
            refuse_broken([info['img_path'] for info in data_list],
                          self.ann_file or self.img_prefix)
        return data_list
