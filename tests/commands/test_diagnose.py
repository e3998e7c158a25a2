"""mmposenc diagnose: classification, segmentation and detection, data that is there or not."""
from __future__ import annotations

import json

import pytest
import torch
from mmengine.registry import init_default_scope
from tinydata import detector_config, make_coco
from tinytasks import classifier_config, segmentor_config
from tinyweights import saved

from mmposenc import engine
from mmposenc.commands.diagnose import main
from mmposenc.engine.config.models import build_model
from mmposenc.lab.diagnose import config_models as diagnosis
from mmposenc.lab.diagnose.config_models import _read, _size, diagnose_config, examined_of
from mmposenc.lab.diagnose.table import diagnose
from mmposenc.lab.figures.encoding_figures import input_size


@pytest.fixture(autouse=True)
def small(monkeypatch):
    """One picture each: what is measured has tests of its own."""
    monkeypatch.setattr(diagnosis, 'NOISE', 1)
    monkeypatch.setattr(diagnosis, 'PICTURES', 2)


def test_the_command_on_a_classifiers_data(tmp_path, capsys):
    config = classifier_config(tmp_path)
    weights = saved(config, tmp_path / 'weights.pth')
    main([str(config), str(weights), '--size', '64', '--output-dir', str(tmp_path / 'out'),
          '--format', 'svg'])
    text = capsys.readouterr().out
    assert text.startswith('cls.py, weights.pth; 64 x 64 pixels; noise, 2 of the test data\n')
    told = json.loads((tmp_path / 'out' / 'diagnosis.json').read_text())
    assert told['trained'] is True and told['size'] == [64, 64] and told['note'] == ''
    files = {path.stem for path in (tmp_path / 'out').glob('*.svg')}
    assert files == {each['name'] for each in told['measures'] if each['series']}
    for each in told['measures']:
        assert each['title'] in text and each['text'] in text
        assert any(line['label'].startswith('pictures') for line in each['series'] or []) or (
            each['name'] == 'position_similarity')
    assert f'wrote {len(files)} figures and diagnosis.json to' in text
    assert 'cls.py, weights.pth' in (tmp_path / 'out' / 'shift_view.svg').read_text()


def test_json_of_a_segmentor_on_pictures_of_its_own(tmp_path, capsys):
    config = segmentor_config(tmp_path)
    pictures = [str(tmp_path / 'data' / 'images' / f'scene_{i}.jpg') for i in (0, 1)]
    main([str(config), '--image', *pictures, '--size', '64', '96', '--json', '--seed', '3'])
    told = json.loads(capsys.readouterr().out)
    assert told['trained'] is False and told['images'] == ['noise', *pictures]
    assert told['size'] == [64, 96] and told['config'] == str(config)
    again = diagnose_config(engine.load_config(str(config)), images=pictures, size=(64, 96), seed=3)
    assert again['measures'] == told['measures']


def test_a_detector_without_its_data_and_with_it(tmp_path):
    """Pictures pass through the config's own preprocessor; noise comes besides."""
    path = detector_config(tmp_path / 'tiny.py', tmp_path / 'coco')
    cfg = engine.load_config(str(path))
    found = diagnose_config(cfg, size=(64, 64))
    assert found['images'] == ['noise'] and found['note'].startswith('the test data is not there')
    assert str(cfg.test_dataloader.dataset.ann_file) in found['note']
    make_coco(tmp_path / 'coco')
    files, note = diagnosis._test_images(cfg)
    assert [each.rpartition('/')[2] for each in files] == ['shape_0.jpg', 'shape_2.jpg']
    assert note == ''
    pixels = _read(cfg, files, (32, 64))
    assert pixels.shape == (2, 3, 32, 64)
    import mmcv
    mean, std = ([123.675, 116.28, 103.53], [58.395, 57.12, 57.375])
    expected = mmcv.imresize(mmcv.imread(files[0]), (64, 32))[..., ::-1]
    torch.testing.assert_close(pixels[0], torch.tensor(
        (expected - mean) / std, dtype=torch.float32).permute(2, 0, 1))


def test_padding_is_masked_where_the_preprocessor_tells_the_sizes(tmp_path):
    path = detector_config(tmp_path / 'tiny.py', tmp_path)
    found = []
    for kind in ('mmposenc.DetDataPreprocessor', 'DetDataPreprocessor'):
        cfg = engine.load_config(str(path))
        cfg.model.backbone.mask_padding = True
        cfg.model.data_preprocessor.type = kind
        torch.manual_seed(0)
        examined = examined_of(build_model(cfg), 'mmdet')
        images = {'noise': torch.randn(1, 3, 64, 64)}
        found.append(next(each for each in diagnose(examined.model, images, examined.run)
                          if each.name == 'padding_error'))
    assert found[0].value < 1e-5 and found[1].value > 1e-3


def test_sizes_by_the_config(tmp_path):
    cfg = engine.load_config(str(classifier_config(tmp_path)))
    examined = examined_of(build_model(cfg), 'mmpretrain')
    assert _size(cfg, examined, None) == (224, 224)
    cfg.model.backbone.img_size = (70, 40)
    assert _size(cfg, examined, None) == (64, 64)  # whole cells of 32, two at least
    crop = dict(type='RandomCrop', crop_size=(96, 130))
    cfg.train_dataloader.dataset.pipeline.insert(1, crop)
    assert _size(cfg, examined, None) == (96, 128)
    assert input_size(cfg, None, None, 32) == (96, 130)  # `mmposenc figures` without a picture
    assert input_size(cfg, None, (10, 20), 32) == (96, 128)
    crop['crop_size'] = (1024, 1536)
    cfg.train_dataloader.dataset.pipeline[1] = crop
    # Of 2:3, as many pixels as 512 x 512 has, 418.04 x 627.06.
    assert input_size(cfg, None, None, 32) == (418, 627)


@pytest.mark.parametrize('size', [(33, 32), (35, 35)])
def test_cells_are_those_of_the_usual_size(size):
    """35 pixels are 5 cells of 8, the last one in part: no cells of 7."""
    cfg = engine.load_config('mmposenc::classification/small/deit-micro-none_1xb32-40e_mnist5k.py')
    with pytest.raises(ValueError, match='must be multiples of 8, the stride of the last map'):
        diagnose_config(cfg, size=size)



def test_a_data_set_that_would_be_downloaded_is_not(tmp_path):
    init_default_scope('mmpretrain')
    cfg = engine.load_config('mmposenc::classification/small/deit-micro-peg_1xb32-40e_mnist5k.py')
    for loader in (cfg.test_dataloader, cfg.val_dataloader):
        loader.dataset.update(data_root=str(tmp_path / 'mnist'), download=True)
    files, note = diagnosis._test_images(cfg)
    assert not files and note.startswith(
        'the test data is not there (RuntimeError: Cannot find MNIST dataset')
    assert not (tmp_path / 'mnist').exists()
    cfg.test_dataloader = cfg.val_dataloader = None
    assert diagnosis._test_images(cfg) == ([], 'the config has no test_dataloader')
