"""train.py and test.py on a tiny segmentor and a tiny classifier."""
import json
import pickle
from pathlib import Path

import pytest
from helpers.tiny_tasks import classifier_config, segmentor_config


@pytest.fixture(scope='module')
def classifier(tmp_path_factory, train) -> dict[str, Path]:
    root = tmp_path_factory.mktemp('classifier')
    config = classifier_config(root)
    train(config, '--work-dir', root / 'work')
    return dict(config=config, checkpoint=root / 'work' / 'epoch_1.pth')


def test_predictions_of_a_segmentor_are_written_without_logits(train, test, tmp_path) -> None:
    """A float map for every class."""
    config = segmentor_config(tmp_path)
    train(config, '--work-dir', tmp_path / 'work')
    test(config, tmp_path / 'work' / 'iter_2.pth', '--out', tmp_path / 'out.pkl')
    for result in pickle.loads((tmp_path / 'out.pkl').read_bytes()):
        assert 'seg_logits' not in result
        labels = result['pred_sem_seg']['data']
        assert labels.shape == (1, 32, 32) and set(labels.unique().tolist()) <= {0, 1}


def test_a_test_by_size(classifier, test, tmp_path, capsys) -> None:
    """At the trained size it is the test itself. A config without a visualizer, as the small ones
    for digits, would have mmengine's, which draws no predictions."""
    sized = tmp_path / 'sized.py'
    sized.write_text(f"""
_base_ = {str(classifier['config'])!r}
visualizer = None
test_dataloader = dict(dataset=dict(pipeline=[
    dict(type='mmposenc.LoadImageFromFile'), dict(type='Resize', scale=(32, 32)),
    dict(type='PackInputs')]))
""")
    show = tmp_path / 'show'
    test(sized, classifier['checkpoint'], '--work-dir', tmp_path / 'one', '--show-dir', show)
    assert len([*show.rglob('*.png')]) == 4
    once = json.loads(next((tmp_path / 'one').glob('*/*.json')).read_text())
    capsys.readouterr()
    test(sized, classifier['checkpoint'], '--work-dir', tmp_path / 'work', '--sizes', 32, 64,
         '--show-dir', show / 'sized')
    said = capsys.readouterr().out
    assert f'\nsize 32: accuracy/top1 {once["accuracy/top1"]:g}' in said
    assert '\nsize 64: accuracy/top1 ' in said
    assert len([*(show / 'sized').rglob('*.png')]) == 8
    with pytest.raises(SystemExit, match='--sizes: no step of the test pipeline has a size'):
        test(classifier['config'], classifier['checkpoint'], '--sizes', 64)
