"""Tiny studies: a classifier on four pictures."""
from dataclasses import replace
from pathlib import Path

from helpers.killed_trainings import arm
from helpers.tiny_tasks import classifier_config
from mmposenc import engine
from mmposenc.engine.variants.encodings import read_entries
from mmposenc.lab.compare.running import runs
from mmposenc.lab.compare.study.config import StudyConfig
from mmposenc.lab.compare.study.study import Study, read_study, write_study

OWN = """
from mmposenc.encodings import PEG


class Mine(PEG):
    pass


class Lost(PEG):
    largest = 0

    def forward(self, x, hw_shape, **kwargs):
        x = super().forward(x, hw_shape, **kwargs)
        return x if self.training or hw_shape[0] <= self.largest else x / 0


class LostWhereLarge(Lost):
    largest = 8


class Broken(PEG):
    def forward(self, x, *args, **kwargs):
        raise RuntimeError('broken on purpose')
"""


def tiny_study(folder: Path, names=('none', 'peg'), seeds=(0,), sizes=(1.0,), epochs=2,
               options=None) -> Study:
    """A study below ``folder`` whose base config is ``folder/cls.py``."""
    if not (folder / 'cls.py').is_file():
        classifier_config(folder)
    cfg = engine.load_config(str(folder / 'cls.py'))
    cfg.merge_from_dict({'log_level': 'WARNING',
                         'train_cfg.max_epochs': epochs, 'train_cfg.val_interval': 1,
                         'randomness.deterministic': True, **(options or {})})
    study = Study(folder / 'study', StudyConfig(cfg), str(folder / 'cls.py'),
                  'mmposenc compare', '2026-01-01', tuple(read_entries(names)), seeds, sizes)
    write_study(study, with_config=True)
    return read_study(study.folder)


class Here:
    """Workers whose runs are over when they are started, in this process; idle ones do nothing."""

    def __init__(self, jobs=2, idle=False):
        self.jobs, self.started, self.idle = jobs, [], idle

    def start(self, started):
        for run in started:
            self.started.append((run.entry.name, run.seed))
            if not self.idle:
                runs.carry_out(read_study(run.folder.parents[2]), run)
        return [self] * len(started)

    def done(self):
        return True

    def result(self):
        return 0

    def stop(self):
        """Nothing is left running."""


def in_another_folder(study: Study, name: str | Path) -> Study:
    """The same study beside it, or at a whole path, with nothing done yet."""
    other = replace(study, folder=study.folder.parent / name)
    write_study(other, with_config=True)
    return read_study(other.folder)


def carry_out_killed(study, run, moment):
    """For a process of its own, as the next one."""
    arm(*moment)
    runs.carry_out(study, run)
