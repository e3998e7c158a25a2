"""``custom_hooks=[dict(type='mmposenc.KeepPaddingOut')]`` in real runs, on images of two sizes."""
import pickle

import pytest

import mmposenc


@pytest.fixture(scope='module')
def hooked(detector, tmp_path_factory):
    """The trained detector's config with the hook."""
    path = tmp_path_factory.mktemp('hooked') / 'tiny.py'
    path.write_text(f"_base_ = {str(detector['config'])!r}\n"
                    f"custom_hooks = [dict(type='mmposenc.KeepPaddingOut')]\n")
    return path


def test_detections_do_not_depend_on_the_batch(detector, hooked, test, tmp_path):
    def detections(config, batch_size):
        out = tmp_path / f'{config.parent.name}_{batch_size}.pkl'
        test(config, detector['checkpoint'], '--work-dir', tmp_path, '--out', out,
             '--cfg-options', f'test_dataloader.batch_size={batch_size}',
             'model.test_cfg.score_thr=0', 'model.data_preprocessor.pad_size_divisor=1')
        return [sample['pred_instances'] for sample in pickle.loads(out.read_bytes())]

    def difference(a, b, key):
        return max(float((x[key] - y[key]).abs().max()) for x, y in zip(a, b, strict=True))
    alone, batched = detections(hooked, 1), detections(hooked, 4)
    plain = detections(detector['config'], 4)
    assert difference(alone, batched, 'bboxes') < 1e-3
    assert difference(alone, batched, 'scores') < 1e-5
    assert difference(alone, plain, 'scores') > 1e-5  # what it is for


def test_a_loaded_model_predicts_as_in_a_test(detector, hooked):
    kinds = [type(mmposenc.load(config, detector['checkpoint']).predict).__name__
             for config in (hooked, detector['config'])]
    assert kinds == ['Prediction', 'method']


def test_a_run_trains_with_the_models_own_loss(hooked, train, tmp_path):
    train(hooked, '--work-dir', tmp_path)
    assert (tmp_path / 'epoch_1.pth').is_file()
    (log,) = tmp_path.rglob('*.log')
    assert log.read_text().count("the training uses the model's own loss") == 1
