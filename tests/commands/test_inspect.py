"""mmposenc inspect: lines, pictures and numbers, of each library; other files stay as they are."""
import json
import re

import mmcv
import numpy as np
import pytest
import torch
from helpers.tiny_data import detector_config, make_coco
from helpers.tiny_tasks import classifier_config, segmentor_config
from helpers.untrained_weights import saved
from mmengine.registry import init_default_scope
from PIL import Image

from mmposenc import engine
from mmposenc.commands.inspect import main
from mmposenc.engine.config.images import picture_as_input
from mmposenc.engine.config.parsed import ParsedConfig
from mmposenc.lab.inspect.report import inspect_config, picture_in_words, rgb_of_pixels

PICTURES = ['kernels', 'similarity', 'attention']


def run(capsys, *words):
    main([str(word) for word in words])
    return capsys.readouterr().out.splitlines()


def test_lines_without_a_folder(tmp_path, capsys):
    lines = run(capsys, classifier_config(tmp_path), '--size', 64, 96)
    assert lines[:2] == ['ImageClassifier on PVT',
                         'PEG after block 0 of stages 0 to 3: 4 modules, 320 parameters']
    parameters = re.fullmatch(r'parameters: (.*), (.*) without encodings', lines[2])
    with_them, without = (int(each.replace(',', '')) for each in parameters.groups())
    assert with_them - without == 4 * 80
    assert re.fullmatch(r'multiply-accumulates for one image of 64 x 96 pixels: [\d.]+ M', lines[3])
    assert len(lines) == 4 and [each.name for each in tmp_path.iterdir()] == ['cls.py', 'data']


def test_pictures_of_a_classifier_on_its_data(tmp_path, capsys):
    config = classifier_config(tmp_path)
    weights, out = saved(config, tmp_path / 'weights.pth'), tmp_path / 'out'
    lines = run(capsys, config, weights, '--size', 64, '--out', out, '--at', 0.1, 0.9)
    about = json.loads((out / 'numbers.json').read_text())
    assert list(about['pictures']) == PICTURES
    for name in about['pictures']:
        assert any(line.startswith(f'{name}.png: ') for line in lines)
        with Image.open(out / f'{name}.png') as drawn:
            assert len(np.unique(np.asarray(drawn))) > 20
    assert {each.name for each in out.iterdir()} == {
        'numbers.json', *(f'{name}.png' for name in PICTURES)}
    assert 'weights.pth on the first test image, 64 x 64 pixels, in' in ' '.join(lines)
    assert about['input'] == [64, 64] and about['parameters'] - about['parameters_without'] == 320
    kernel = torch.load(weights)['state_dict'][
        'backbone.stages.0.pos_encodings.at.after0.0.proj.0.weight']
    shown = about['pictures']['kernels']['PEG, stages.0.pos_encodings.at.after0.0.proj.0.weight']
    np.testing.assert_allclose(shown, kernel[:, 0], rtol=1e-5)
    assert about['pictures']['attention']['at'] == [0.1, 0.9]
    assert f'shift error {about["shift_error"]:.2g}: ' in ' '.join(lines)


def test_a_segmentor_on_a_picture_of_its_own(tmp_path, capsys):
    config, picture = segmentor_config(tmp_path), tmp_path / 'data' / 'images' / 'scene_1.jpg'
    lines = run(capsys, config, '--image', picture, '--size', 64, 96, '--out', tmp_path / 'out')
    assert f'random weights on {picture}, 64 x 96 pixels' in ' '.join(lines)
    about = json.loads((tmp_path / 'out' / 'numbers.json').read_text())
    assert list(about['pictures']) == PICTURES


def test_a_detector_without_its_data_and_with_it(tmp_path, capsys):
    """Pictures pass through the config's own preprocessor."""
    config = detector_config(tmp_path / 'tiny.py', tmp_path / 'coco')
    lines = run(capsys, config, '--size', 70, 60, '--out', tmp_path / 'out')
    # Whole cells of 32 pixels.
    assert 'on noise (the test data is not there), 64 x 64 pixels' in ' '.join(lines)
    make_coco(tmp_path / 'coco')
    cfg = engine.load_config(str(config))
    picture, words = picture_in_words(ParsedConfig(cfg), None)
    assert words == 'the first test image'
    np.testing.assert_array_equal(picture, mmcv.imread(tmp_path / 'coco/images/shape_0.jpg'))
    mean, std = ([123.675, 116.28, 103.53], [58.395, 57.12, 57.375])
    expected = (mmcv.imresize(picture, (64, 64))[..., ::-1] - mean) / std
    made = picture_as_input(ParsedConfig(cfg), picture, (64, 64))[0]
    torch.testing.assert_close(made, torch.tensor(expected, dtype=torch.float32).permute(2, 0, 1))
    np.testing.assert_allclose(rgb_of_pixels(picture), picture[..., ::-1] / 255)


def test_a_detr_and_a_model_of_another_library(tmp_path, capsys):
    config = 'mmposenc::detection/small/deformable-detr_r18-w16-none-peg_1xb4-50e_bccd.py'
    run(capsys, config, '--size', 64, '--out', tmp_path / 'detr')
    about = json.loads((tmp_path / 'detr' / 'numbers.json').read_text())
    assert list(about['pictures']) == ['kernels', 'similarity']
    run(capsys, 'mmdet::swin/mask-rcnn_swin-t-p4-w7_fpn_1x_coco.py', '--size', 64, '--out',
        tmp_path / 'swin')
    assert json.loads((tmp_path / 'swin' / 'numbers.json').read_text())['pictures'] == {}


def test_a_checkpoint_without_a_folder_is_not_passed_over(tmp_path):
    config = classifier_config(tmp_path)
    with pytest.raises(ValueError, match='weights.pth.*shown only with out.*give --out DIR'):
        inspect_config(engine.load_config(str(config)),
                       str(saved(config, tmp_path / 'weights.pth')))


@pytest.mark.parametrize('name', ['kernels.png', 'numbers.json'])
def test_nothing_is_overwritten(tmp_path, name):
    cfg = engine.load_config(str(classifier_config(tmp_path)))
    out = tmp_path / 'out'
    out.mkdir()
    (out / name).symlink_to('nowhere')
    with pytest.raises(ValueError, match=f'--out .*out: {name} exists; give another folder'):
        inspect_config(cfg, out=str(out))
    assert [each.name for each in out.iterdir()] == [name]


def test_a_data_set_that_would_be_downloaded_is_not(tmp_path):
    init_default_scope('mmpretrain')
    cfg = engine.load_config('mmposenc::classification/small/deit-micro-peg_1xb32-40e_mnist5k.py')
    for loader in (cfg.test_dataloader, cfg.val_dataloader):
        loader.dataset.update(data_root=str(tmp_path / 'mnist'), download=True)
    assert picture_in_words(ParsedConfig(cfg), None) == (
        None, 'noise (the test data is not there)')
    assert not (tmp_path / 'mnist').exists()
    cfg.test_dataloader = cfg.val_dataloader = None
    assert picture_in_words(ParsedConfig(cfg), None) == (
        None, 'noise (the config has no test data)')
