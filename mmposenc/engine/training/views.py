"""A data set that augments each of its images in a few fixed ways."""
from __future__ import annotations

from typing import Any

import numpy as np
from mmengine.dataset import RepeatDataset

from .seeding import place_seed, seed_all


class FewViews(RepeatDataset):
    """Draws the augmentation of an image from ``views`` that are always the same.

    What a pipeline draws for a view has a seed of its own, from (``seed``, the image's number, the
    view): the same in every epoch, run and process. So features of a frozen backbone can be kept
    (:class:`mmposenc.engine.FeatureCacheHook`). Which view an epoch takes is drawn as augmentations
    are otherwise, and so depends on the run's seed.

    Args:
        dataset: a data set or its config.
        views: ways to augment each image.
        seed: of the views.

    Raises:
        ValueError: for less than one view.
    """

    def __init__(self, dataset: Any, views: int = 4, seed: int = 0) -> None:
        if views < 1:
            raise ValueError(f'views={views} must be at least 1')
        super().__init__(dataset, times=1)
        self.views, self.seed = views, seed

    def __getitem__(self, idx: int) -> Any:
        return self.view(idx, int(np.random.randint(self.views)))

    def view(self, idx: int, number: int) -> Any:
        """Image ``idx`` as augmented in way ``number``."""
        seed_all(place_seed(self.seed, idx, number))
        return super().__getitem__(idx)
