"""mmposenc inspect: lines, pictures and numbers, of each library; other files stay as they are."""
import json
import re

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
from mmposenc.lab.inspect.report import (
    inspect_config,
    inspected_model_and_inputs,
    pictures_of_test_data,
)

PICTURES = ['kernels', 'similarity', 'attention']
MEASURES = ['attention_distance', 'shift_error', 'position_probe']


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
    assert re.fullmatch(r'multiply-accumulates for one image of 64 x 96 pixels: [\d.]+ M, '
                        r'[\d.]+ M without encodings', lines[3])
    assert len(lines) == 4 and [each.name for each in tmp_path.iterdir()] == ['cls.py', 'data']


def test_pictures_and_measures_of_a_classifier_on_its_data(tmp_path, capsys):
    config = classifier_config(tmp_path)
    weights, out = saved(config, tmp_path / 'weights.pth'), tmp_path / 'out'
    lines = run(capsys, config, weights, '--size', 64, '--out', out, '--at', 0.1, 0.9)
    about = json.loads((out / 'numbers.json').read_text())
    assert list(about['pictures']) == PICTURES + MEASURES
    for name in about['pictures']:
        assert any(line.startswith(f'{name}.png: ') for line in lines)
        with Image.open(out / f'{name}.png') as drawn:
            assert len(np.unique(np.asarray(drawn))) > 20
    assert {each.name for each in out.iterdir()} == {
        'numbers.json', *(f'{name}.png' for name in PICTURES + MEASURES)}
    assert 'pictures of weights.pth on 4 of the test images, 64 x 64 pixels, in' in ' '.join(lines)
    assert about['input'] == [64, 64] and about['parameters'] - about['parameters_without'] == 320
    kernel = torch.load(weights)['state_dict'][
        'backbone.stages.0.pos_encodings.at.after0.0.proj.0.weight']
    shown = about['pictures']['kernels']['PEG, stages.0.pos_encodings.at.after0.0.proj.0.weight']
    np.testing.assert_allclose(shown, kernel[:, 0], rtol=1e-5)
    assert about['pictures']['attention']['at'] == [0.1, 0.9]
    assert len(about['pictures']['shift_error']['errors']) == 8


def test_a_segmentor_on_pictures_of_its_own(tmp_path, capsys):
    config = segmentor_config(tmp_path)
    pictures = [tmp_path / 'data' / 'images' / f'scene_{i}.jpg' for i in (0, 1)]
    lines = run(capsys, config, '--image', *pictures, '--size', 64, 96, '--out', tmp_path / 'out')
    assert 'pictures of random weights on 2 images, 64 x 96 pixels' in ' '.join(lines)
    about = json.loads((tmp_path / 'out' / 'numbers.json').read_text())
    assert list(about['pictures']) == PICTURES  # nothing is measured


def test_a_detector_without_its_data_and_with_it(tmp_path):
    """Pictures pass through the config's own preprocessor."""
    cfg = engine.load_config(str(detector_config(tmp_path / 'tiny.py', tmp_path / 'coco')))
    subject, inputs = inspected_model_and_inputs(cfg, None, size=(70, 60))
    assert inputs.names == 'noise (the test data is not there)' and inputs.photo is None
    assert inputs.images.shape == (4, 3, 64, 64)  # whole cells of 32 pixels
    assert [values.shape[-1] for values in subject.maps(inputs.images).values()][-1] == 2
    make_coco(tmp_path / 'coco')
    files, names = pictures_of_test_data(cfg)
    assert names == f'{len(files)} of the test images' and files[0].endswith('shape_0.jpg')
    _, inputs = inspected_model_and_inputs(cfg, None, size=(64, 64))
    import mmcv
    mean, std = ([123.675, 116.28, 103.53], [58.395, 57.12, 57.375])
    picture = mmcv.imread(files[0])
    expected = (mmcv.imresize(picture, (64, 64))[..., ::-1] - mean) / std
    torch.testing.assert_close(inputs.images[0], torch.tensor(
        expected, dtype=torch.float32).permute(2, 0, 1))
    np.testing.assert_allclose(inputs.photo, picture[..., ::-1] / 255)


def test_a_detr_and_a_model_of_another_library(tmp_path, capsys):
    config = 'mmposenc::detection/small/deformable-detr_r18-w16-none-peg_1xb4-50e_bccd.py'
    lines = run(capsys, config, '--size', 64, '--out', tmp_path / 'detr')
    # 9 weights of the convolution and 2 of its norm for each channel.
    assert lines[1] == f'PEG after layer 0 of the encoder: 1 module, {128 * (9 + 2):,} parameters'
    about = json.loads((tmp_path / 'detr' / 'numbers.json').read_text())
    assert list(about['pictures']) == ['kernels', 'similarity']
    lines = run(capsys, 'mmdet::swin/mask-rcnn_swin-t-p4-w7_fpn_1x_coco.py', '--size', 64,
                '--out', tmp_path / 'swin')
    assert lines[:2] == ['MaskRCNN on SwinTransformer',
                         "SwinTransformer's own relative_position_bias_table in 12 WindowMSA: "
                         '12 tables, 23,322 parameters']
    assert json.loads((tmp_path / 'swin' / 'numbers.json').read_text())['pictures'] == {}


def test_a_checkpoint_without_a_folder_is_not_passed_over(tmp_path):
    config = classifier_config(tmp_path)
    with pytest.raises(ValueError, match='weights.pth.*measured only with out.*give --out DIR'):
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
    assert pictures_of_test_data(cfg) == ([], 'noise (the test data is not there)')
    assert not (tmp_path / 'mnist').exists()
    cfg.test_dataloader = cfg.val_dataloader = None
    assert pictures_of_test_data(cfg) == ([], 'noise (the config has no test data)')
