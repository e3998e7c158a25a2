"""What is known of a study, and what is read from it again and again."""
from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from statistics import fmean
from typing import Any, NamedTuple, TypeAlias

from mmposenc.config_types import ImageSize

#: What is known of an encoding, a run, a size or a difference, by name, as JSON has it.
Row: TypeAlias = dict[str, Any]
#: For each encoding and each seed, the value.
Values: TypeAlias = dict[str, dict[int, float]]


class Metric(NamedTuple):
    """The number by which encodings are compared; for all that are known here, more is better.

    Attributes:
        name: its key in the results of a test.
        label: what tables and charts show.
        unit: '%', or '' for numbers from 0 to 1.
    """

    name: str
    label: str
    unit: str = ''


@dataclass
class Results:
    """All that is known of a study.

    Attributes:
        title, config, task: of the config.
        metric: as above.
        sizes: a row for each image size, with its ``factor`` and its ``hw``.
        length: how long a training is: a number by its unit.
        environment: versions and machines.
        encodings, runs: a row for each.
        created, command: when, and by which calls.
        margin: points; encodings closer than that are level.
        summary: a row for each encoding and size; this and the next two by
            :func:`.summary.with_summary`.
        differences: a row for each comparison.
        recommendation: what to take, and why.
        take: the config with the recommended encoding, and the command that trains it.
    """

    title: str
    config: str
    task: str
    metric: Metric
    sizes: list[Row]
    length: dict[str, int]
    environment: Row
    encodings: list[Row]
    runs: list[Row]
    created: str = ''
    command: str = ''
    margin: float = 1.0
    summary: list[Row] = field(default_factory=list)
    differences: list[Row] = field(default_factory=list)
    recommendation: Row = field(default_factory=dict)
    take: dict[str, str] | None = None

    @classmethod
    def read(cls, fields: Mapping[str, Any]) -> Results:
        """Results that were written as JSON."""
        return cls(**{**fields, 'metric': Metric(**fields['metric'])})

    @property
    def margin_in_unit(self) -> float:
        """The difference below which encodings count as level, in the metric's unit."""
        return self.margin if self.metric.unit == '%' else self.margin / 100

    @property
    def tested_sizes(self) -> list[ImageSize]:
        """The image sizes in the study's order: multiples of the test's size, then pixels."""
        return [each['factor'] for each in self.sizes]

    @property
    def label(self) -> dict[str, str]:
        """For each encoding, its name for readers, in the order of the study."""
        return {each['name']: each['label'] for each in self.encodings}

    @property
    def base(self) -> str:
        """The encoding with which others are compared: 'none', or otherwise the first one."""
        return 'none' if 'none' in self.label else next(iter(self.label))

    def values_at(self, at: ImageSize) -> Values:
        """For each encoding and each seed, the value at a size, of finished runs only; every
        encoding has an entry.

        A run that diverged or failed has no value, and neither has one whose value is not finite.
        """
        values: Values = {name: {} for name in self.label}
        for run in self.runs:
            for test in run['tests'] if run['status'] == 'finished' else ():
                value = test['value']
                if test['factor'] == at and value is not None and math.isfinite(value):
                    values[run['encoding']][run['seed']] = float(value)
        return values

    def without_images_at(self, at: ImageSize) -> dict[str, list[list[float]]]:
        """For each encoding, of each finished run the values without some of the images, at a size;
        all have the same number of them, or there are none."""
        left = {name: [test['without_images'] for run in self.runs for test in run['tests']
                       if run['encoding'] == name and run['status'] == 'finished'
                       and test['factor'] == at and test.get('without_images')]
                for name in self.label}
        return left if len({len(each) for runs in left.values() for each in runs}) == 1 else {}

    def summary_at(self, at: ImageSize) -> dict[str, Row]:
        """For each encoding, its row of ``summary`` at a size; the best mean comes first, and
        encodings without a mean last."""
        rows = [row for row in self.summary if row['factor'] == at]
        rows.sort(key=lambda row: math.inf if row['mean'] is None else -row['mean'])
        return {row['encoding']: row for row in rows}

    def num_diverged(self, name: str) -> int:
        """The number of runs of an encoding that diverged."""
        return sum(run['encoding'] == name and run['status'] == 'diverged' for run in self.runs)


def encoding_with_best_mean(values: Values) -> str | None:
    """The encoding with the best mean; the first of equal ones; None if nothing is known."""
    means = {name: fmean(seeds.values()) for name, seeds in values.items() if seeds}
    return max(means, key=lambda name: means[name], default=None)
