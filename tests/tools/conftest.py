"""The tools, called in this process, and a detector that they trained."""
import itertools
from pathlib import Path

import pytest
from helpers.scripts import load_tool
from helpers.tiny_data import tiny_detector


def call(main):
    """``main`` with command-line arguments, '--cfg-options' last. mmengine keeps one logger and
    one visualizer a name: runs of one process need different ones."""
    numbers = itertools.count()

    def run(*args: object) -> None:
        words = [str(arg) for arg in args]
        if '--cfg-options' not in words:
            words.append('--cfg-options')
        name = f'{main.__module__}{next(numbers)}'
        main([*words, f'experiment_name={name}', f'visualizer.name={name}'])
    return run


@pytest.fixture(scope='session')
def train():
    """``train(config, '--work-dir', ...)`` as on the command line."""
    return call(load_tool('train').main)


@pytest.fixture(scope='session')
def test():
    return call(load_tool('test').main)


@pytest.fixture(scope='session')
def detector(tmp_path_factory, train) -> dict[str, Path]:
    """Data, config, work directory and checkpoint of a tiny RetinaNet-PVT + PEG, trained for two
    epochs of two iterations."""
    root = tmp_path_factory.mktemp('detector')
    config = tiny_detector(root)
    work_dir = root / 'work'
    train(config, '--work-dir', work_dir, '--cfg-options', 'train_cfg.max_epochs=2')
    return dict(data=root / 'data', config=config, work_dir=work_dir,
                checkpoint=work_dir / 'epoch_2.pth')
