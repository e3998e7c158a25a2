"""``custom_hooks=[dict(type='mmposenc.KeepPaddingOut')]`` in real runs."""
import pytest

import mmposenc
from mmposenc import engine


@pytest.fixture(scope='module')
def hooked(detector, tmp_path_factory):
    """The trained detector's config with the hook."""
    path = tmp_path_factory.mktemp('hooked') / 'tiny.py'
    path.write_text(f"_base_ = {str(detector['config'])!r}\n"
                    f"custom_hooks = [dict(type='mmposenc.KeepPaddingOut')]\n")
    return path


def test_a_run_and_a_loaded_model_keep_it_out(detector, hooked, tmp_path):
    """What that gives is in tests/padding/test_prediction.py."""
    cfg = engine.load_config(str(hooked))
    cfg.work_dir = str(tmp_path)
    run = engine.build_runner(cfg)
    run.call_hook('before_run')
    models = [run.model, *(mmposenc.load(config, detector['checkpoint'])
                           for config in (hooked, detector['config']))]
    assert [type(model.predict).__name__ for model in models] == ['Prediction'] * 2 + ['method']


def test_a_run_trains_with_the_models_own_loss(hooked, train, tmp_path):
    train(hooked, '--work-dir', tmp_path)
    assert (tmp_path / 'epoch_1.pth').is_file()
    (log,) = tmp_path.rglob('*.log')
    assert log.read_text().count("the training uses the model's own loss") == 1
