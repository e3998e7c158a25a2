"""test.py on a tiny classifier."""
import json

import pytest
from helpers.tiny_tasks import classifier_config
from helpers.untrained_weights import saved


def test_a_test_by_size(test, tmp_path, capsys) -> None:
    """At the trained size it is the test itself. A config without a visualizer, as the small ones
    for digits, would have mmengine's, which draws no predictions."""
    config = classifier_config(tmp_path)
    weights, sized = saved(config, tmp_path / 'weights.pth'), tmp_path / 'sized.py'
    sized.write_text(f"""
_base_ = {str(config)!r}
visualizer = None
test_dataloader = dict(dataset=dict(pipeline=[
    dict(type='mmposenc.LoadImageFromFile'), dict(type='Resize', scale=(32, 32)),
    dict(type='PackInputs')]))
""")
    show = tmp_path / 'show'
    test(sized, weights, '--work-dir', tmp_path / 'one', '--show-dir', show)
    assert len([*show.rglob('*.png')]) == 4
    once = json.loads(next((tmp_path / 'one').glob('*/*.json')).read_text())
    capsys.readouterr()
    test(sized, weights, '--work-dir', tmp_path / 'work', '--sizes', 32, 64,
         '--show-dir', show / 'sized')
    said = capsys.readouterr().out
    assert f'\nsize 32: accuracy/top1 {once["accuracy/top1"]:g}' in said
    assert '\nsize 64: accuracy/top1 ' in said
    assert len([*(show / 'sized').rglob('*.png')]) == 8
    with pytest.raises(SystemExit, match='--sizes: no step of the test pipeline has a size'):
        test(config, weights, '--sizes', 64)
