"""The number of a test without some of its images, from which follows what other images would say.
"""
from __future__ import annotations

import contextlib
import io
import math

from mmengine.evaluator import BaseMetric

from mmposenc.openmmlab.logs import quiet_log

from ..study.records import Record

#: The images are left out in so many groups of neighbours, such as frames of one video.
GROUPS = 20
#: Tests of more images are computed once: a metric such as COCO's AP takes long there.
MOST_IMAGES = 1000


def also_without_images(metric: BaseMetric, name: str) -> list[float]:
    """Have a metric of mmengine compute its number once more without each group of images.

    Args:
        metric: its results are one for each image.
        name: of the number, with or without the metric's prefix.

    Returns:
        A list, which the next test fills; it stays empty where one of the numbers is not known,
        and for more than MOST_IMAGES images.
    """
    compute, left = metric.compute_metrics, list[float]()

    def of_all_and_of_parts(results: list[tuple[Record, ...]]) -> dict[str, float]:
        whole, ids = compute(results), getattr(metric, 'img_ids', None)
        count = min(GROUPS, len(results)) if 1 < len(results) <= MOST_IMAGES else 0
        values = list[float]()
        with quiet_log(), contextlib.redirect_stdout(io.StringIO()):
            for group in range(count):
                part = [each for index, each in enumerate(results)
                        if index * count // len(results) != group]
                if ids is not None:  # COCO's metrics ask for the images of the file.
                    metric.img_ids = [predicted['img_id'] for _, predicted in part]
                values.append(float(compute(part).get(name.rpartition('/')[2], math.nan)))
        if ids is not None:
            metric.img_ids = ids
        left[:] = values if all(map(math.isfinite, values)) else []
        return whole

    metric.compute_metrics = of_all_and_of_parts
    return left
