import shutil

import pytest
from helpers.tiny_studies import tiny_study

from mmposenc.lab.compare.running.runs import carry_out
from mmposenc.lab.compare.study.study import read_study


@pytest.fixture(scope='session')
def finished(tmp_path_factory):
    """A study of two encodings, two seeds and two sizes, which is over. Not to be changed."""
    study = tiny_study(tmp_path_factory.mktemp('finished'), seeds=(0, 1), sizes=(1.0, 2.0))
    for run in study.runs():
        carry_out(study, run)
    return study


@pytest.fixture
def copied(finished, tmp_path):
    """The same in a folder of the test's own."""
    return read_study(shutil.copytree(finished.folder, tmp_path / 'study'))
