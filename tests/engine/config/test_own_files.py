"""Training and testing write beside the user's files, not over them."""
from pathlib import Path

import pytest
from helpers.tiny_data import detector_config, make_coco
from mmengine.config import Config

from mmposenc.engine import build_runner, load_config, set_test_options, set_train_options


@pytest.fixture
def config(tmp_path) -> Path:
    return detector_config(tmp_path / 'mine.py', make_coco(tmp_path / 'data'))


def read(config: Path, work_dir: Path, **options) -> Config:
    cfg = load_config(str(config))
    cfg.work_dir = str(work_dir)
    cfg.experiment_name = cfg.visualizer.name = f'own_files_{work_dir.name}'
    cfg.merge_from_dict(options)
    return cfg


def train(config: Path, work_dir: Path, **options) -> None:
    cfg = read(config, work_dir, **{'train_cfg.max_epochs': 1, **options})
    set_train_options(cfg)
    build_runner(cfg).train()


def test_a_new_training_and_a_test_leave_what_an_old_training_wrote(config, tmp_path) -> None:
    work_dir = tmp_path / 'work'
    train(config, work_dir, **{'optim_wrapper.optimizer.lr': 0.00077})
    trained = (work_dir / 'mine.py').read_text()
    assert 'lr=0.00077' in trained
    with pytest.raises(ValueError, match=r'\(epoch_1\.pth\), .* --resume .*another --work-dir'):
        train(config, work_dir)
    cfg = read(config, work_dir)
    set_test_options(cfg, str(work_dir / 'epoch_1.pth'), show_dir=str(tmp_path / 'pictures'))
    build_runner(cfg).test()
    assert (work_dir / 'mine.py').read_text() == trained
    tested, = (path for path in work_dir.glob('*/mine.py') if 'pictures' in path.read_text())
    assert Config.fromfile(tested).load_from == str(work_dir / 'epoch_1.pth')
    assert Config.fromfile(tested).train_cfg is None  # nobody trains from it by mistake
    cfg = read(config, work_dir, **{'train_cfg.max_epochs': 2})
    set_train_options(cfg, resume='auto')
    build_runner(cfg).train()
    dumped = Config.fromfile(work_dir / 'mine.py')
    assert dumped.train_cfg.max_epochs == 2
    assert (dumped.resume, dumped.load_from) == (False, None)  # the next training begins anew


def test_a_training_in_the_folder_of_its_config(config, tmp_path) -> None:
    text = config.read_text()
    train(config, tmp_path)
    assert config.read_text() == text
    dumped, = tmp_path.glob('*_*/mine.py')
    assert Config.fromfile(dumped).train_cfg.max_epochs == 1
    cfg = read(config, tmp_path)
    set_test_options(cfg, str(tmp_path / 'epoch_1.pth'))
    build_runner(cfg).test()
    assert config.read_text() == text


def test_links_in_the_place_of_our_files_are_replaced(config, tmp_path) -> None:
    work_dir, elsewhere = tmp_path / 'work', tmp_path / 'elsewhere'
    train(config, elsewhere)
    work_dir.mkdir()
    files = [elsewhere / name for name in ('last_checkpoint', 'mine.py')]
    before = [path.read_text() for path in files]
    for path in files:
        (work_dir / path.name).symlink_to(path)
    train(config, work_dir, **{'optim_wrapper.optimizer.lr': 0.00077})
    assert [path.read_text() for path in files] == before
    assert (work_dir / 'last_checkpoint').read_text() == str(work_dir / 'epoch_1.pth')
    assert 'lr=0.00077' in (work_dir / 'mine.py').read_text()
    assert not any((work_dir / path.name).is_symlink() for path in files)
