"""--data: a config of another data set trains on a prepared folder."""
import re
from pathlib import Path

import numpy as np
import pytest
from helpers.scripts import load_tool
from helpers.tiny_data import detector_config, make_coco
from helpers.tiny_tasks import picture
from mmengine.registry import DATASETS, DefaultScope

from mmposenc.engine import load_config
from mmposenc.engine.config.anchors import _best_overlaps, box_sizes
from mmposenc.engine.config.checked_classes import with_checked_classes
from mmposenc.engine.config.checks import check_files, check_num_classes
from mmposenc.engine.config.data import _possible_topk, point_to_folder
from mmposenc.engine.config.models import build_bare
from mmposenc.engine.config.options import override_in_place
from mmposenc.engine.config.parsed import ParsedConfig
from mmposenc.engine.prepare.convert import convert_labels
from mmposenc.engine.prepare.objects import object_sizes_text
from mmposenc.engine.variants.sizes import config_trained_at_size

PHASES = ('train', 'val', 'test')
NAMES = ['square', 'disc', 'ring']
CAMVID = 'mmposenc::segmentation/small/fpn_pvt-micro-none_1xb4-10e_camvid-192x256.py'


def labelled(root: Path, kind: str, parts: tuple[str, ...] = ()) -> Path:
    """A folder as ``prepare --from`` makes it, of four pictures with one of three classes each."""
    source = root / 'source'
    for i, part in enumerate([*parts, 'train', 'val', 'train', 'val']):
        suffix = ('jpg', 'PNG')[i // 2 % 2]
        labels = picture(source / 'images' / part / f'p{i}.{suffix}', i)
        place = source / 'labels' / part / f'p{i}'
        place.parent.mkdir(parents=True, exist_ok=True)
        if kind == 'masks':
            from PIL import Image
            Image.fromarray(labels * 2).save(f'{place}.png')
        else:
            Path(f'{place}.txt').write_text(f'{i % 3} 0.375 0.5 0.5 0.5\n')
    convert_labels(kind, source, root / 'mine', NAMES, log=lambda line: None)
    return root / 'mine'


def folders_of_classes(root: Path) -> Path:
    for i, part in enumerate(('train', 'val') * 3):
        picture(root / 'mine' / part / NAMES[i // 2] / f'p{i}.{("png", "webp", "TIFF")[i // 2]}', i)
    return root / 'mine'


@pytest.mark.parametrize('config, kind', [
    ('detection/small/retinanet_pvt-micro-peg_fpn_1xb4-12e_trees.py', 'yolo'),  # in a RepeatDataset
    ('detection/small/dino_r18-w16_1xb4-15e_bccd.py', 'yolo'),
    ('mmdet::pascal_voc/retinanet_r50_fpn_1x_voc0712.py', 'yolo'),  # has other prefixes
    (CAMVID, 'masks'),
    ('segmentation/small/linear_vit-s14_1xb4-10e_nuclei-448x448.py', 'masks'),
    ('segmentation/small/eomt_vit-s14_1xb4-5e_camvid-252x336.py', 'masks'),
    ('classification/small/deit-micro-peg_1xb32-40e_mnist5k.py', 'folders'),
    ('mmseg::sem_fpn/fpn_r50_4xb4-160k_ade20k-512x512.py', 'masks'),
    ('mmpretrain::deit/deit-tiny_4xb256_in1k.py', 'folders')])
def test_the_folder_is_read_with_its_names(tmp_path, config, kind) -> None:
    cfg = load_config(config if '::' in config else f'mmposenc::{config}')
    folder = folders_of_classes(tmp_path) if kind == 'folders' else labelled(tmp_path, kind)
    if kind == 'masks':
        ParsedConfig(cfg).pipeline('train')[1].reduce_zero_label = True
    point_to_folder(cfg, str(folder))
    assert not {'data_root', 'metainfo', 'classes'} & set(cfg)  # names of the other data
    parsed = ParsedConfig(cfg)
    assert 'reduce_zero_label' not in str(parsed.pipeline('train'))
    if kind != 'yolo':  # mmdet's data sets name a broken file
        read = ['mmposenc.LoadImageFromFile', 'mmposenc.LoadSegAnnotations'][:1 + (kind == 'masks')]
        assert {step.type for phase in PHASES for step in parsed.pipeline(phase)
                if 'Load' in step.type} == {*read}
    assert {head.num_classes for head in parsed.heads.values()} == {3}
    assert cfg.model.backbone.get('num_classes', 3) == 3
    check_num_classes(parsed, PHASES)
    check_files(parsed, PHASES)
    for phase in PHASES:  # visualizers stop at a colour that is a list
        *_, node = parsed.data_sets(phase).values()
        assert [type(colour) for colour in node.metainfo.palette] == [tuple] * 3
    expected = sorted(NAMES) if kind == 'folders' else NAMES
    for phase, part in zip(PHASES, ('train', 'val', 'val'), strict=True):
        *_, node = parsed.data_sets(phase).values()
        with DefaultScope.overwrite_default_scope(cfg.default_scope):
            built = DATASETS.build(node)
        built.full_init()
        assert list(built.metainfo['classes']) == expected
        paths = [built.get_data_info(i)['img_path'] for i in range(len(built))]
        assert len(paths) == (3 if kind == 'folders' else 2)
        assert all(Path(path).is_file() and part in path for path in paths)
        with DefaultScope.overwrite_default_scope(cfg.default_scope):
            sample = built[0]
        channels = cfg.model.backbone.get('in_channels', 3)
        assert sample['inputs'].shape[0] == channels and sample['data_samples'].img_path == paths[0]
    if kind == 'yolo':
        boxes = [each['bbox'] for i in range(2) for each in built.get_data_info(i)['instances']]
        assert boxes == [[4, 8, 20, 24]] * 2
        file = str(folder / 'val.json')
        assert all(each.get('ann_file', file) == file
                   for each in (cfg.val_evaluator, cfg.test_evaluator))
    if kind == 'folders':
        assert max(cfg.val_evaluator.topk) <= 3


@pytest.mark.parametrize('config', ['mask2former/mask2former_r50_8xb2-lsj-50e_coco',
                                    'pretrained/eomt_dinov3-s_8xb2-lsj-12e_coco-640x640'])
def test_masks_of_instances_have_the_classes_of_the_folder(tmp_path, config) -> None:
    cfg = load_config(f'mmposenc::detection/{config}.py')
    with pytest.raises(ValueError, match=r'panoptic_fusion_head.num_things_classes \+ .*: 79'):
        cfg.model.panoptic_fusion_head.num_things_classes = 79
        check_num_classes(ParsedConfig(cfg), ('train',))
    point_to_folder(cfg, str(labelled(tmp_path, 'yolo')))
    check_num_classes(ParsedConfig(cfg), PHASES)
    model = build_bare(cfg, 'meta')
    assert model.panoptic_head.num_classes == model.panoptic_fusion_head.num_classes == 3
    assert model.panoptic_head.loss_cls.class_weight == [1.0, 1.0, 1.0, 0.1]
    classifier = getattr(model.panoptic_head, 'cls_embed', None) or (
        model.backbone.predictor.class_head)
    assert classifier.out_features == 3 + 1  # no object


@pytest.mark.parametrize('config, kind, heads', [
    ('mmdet::solo/solo_r50_fpn_1x_coco', 'yolo', ['mask_head']),
    ('mmdet::ms_rcnn/ms-rcnn_r50-caffe_fpn_1x_coco', 'yolo', [
        'roi_head.bbox_head', 'roi_head.mask_head', 'roi_head.mask_iou_head']),
    ('mmpretrain::lenet/lenet5_mnist', 'folders', ['backbone']),
    ('mmpretrain::mae/mae_vit-base-p16_8xb512-amp-coslr-300e_in1k', 'folders', [])])
def test_all_parts_that_predict_classes_get_their_number(tmp_path, config, kind, heads) -> None:
    """The parts of the model say it; one that is pretrained without labels has none."""
    folder = folders_of_classes(tmp_path) if kind == 'folders' else labelled(tmp_path, kind)
    cfg = load_config(f'{config}.py')
    point_to_folder(cfg, str(folder))
    assert {key: head.num_classes for key, head in ParsedConfig(cfg).heads.items()} == {
        f'model.{name}': 3 for name in heads}


@pytest.mark.parametrize('topk, possible', [((1, 5), (1,)), (5, (1,)), ([1, 3], (1, 3)), (3, (3,))])
def test_accuracy_is_among_as_many_classes_as_there_are(topk, possible) -> None:
    assert _possible_topk(topk, 3) == possible


UNIFORM, OWN = [1.0] * 150, [0.5 + i / 200 for i in range(150)]


@pytest.mark.parametrize('weights, expected, said', [
    ([*UNIFORM, 0.1], [1.0, 1.0, 1.0, 0.1], ''),  # the last is that of no object
    (UNIFORM, [1.0] * 3, ''),
    (OWN, None, 'loss_decode.1.class_weight: left out, its 150 weights are those of other'),
    ([1.0, 2.0], [1.0, 2.0], ''),  # of something else than classes
    ([1.0, 2.0, 3.0], [1.0, 2.0, 3.0], '')])  # of as many classes
def test_weights_of_classes_in_a_head(tmp_path, capsys, weights, expected, said) -> None:
    cfg, before = load_config(CAMVID), 3 if len(weights) == 3 else 150
    cfg.model.decode_head.update(num_classes=before, loss_decode=[dict(type='DiceLoss'), dict(
        type='CrossEntropyLoss', class_weight=weights, num_classes=before)])
    point_to_folder(cfg, str(labelled(tmp_path, 'masks')))
    loss = cfg.model.decode_head.loss_decode[1]
    assert loss.get('class_weight') == expected and loss.num_classes == 3
    assert said in capsys.readouterr().out


def test_one_of_several_processes_prints_the_classes(tmp_path, capsys, monkeypatch) -> None:
    folder = str(labelled(tmp_path, 'masks'))
    for rank, lines in (('0', 1), ('1', 0)):
        monkeypatch.setenv('RANK', rank)
        point_to_folder(load_config(CAMVID), folder)
        assert capsys.readouterr().out.count(f'{folder}: classes') == lines


def test_colours_of_a_config_are_tuples() -> None:
    """A config that was written has lists, at which visualizers stop."""
    data = dict(type='RepeatDataset', dataset=dict(metainfo=dict(palette=[[255, 0, 0]])))
    assert with_checked_classes(data)['dataset']['metainfo']['palette'] == [(255, 0, 0)]


def test_a_part_to_test_with_is_taken(tmp_path) -> None:
    cfg = load_config('mmposenc::detection/small/retinanet_pvt-micro-peg_fpn_1xb4-12e_bccd.py')
    folder = labelled(tmp_path, 'yolo', ('test',))
    point_to_folder(cfg, str(folder))
    assert cfg.test_evaluator.ann_file == str(folder / 'test.json')
    assert cfg.val_evaluator.ann_file == str(folder / 'val.json')
    assert cfg.val_dataloader.dataset.ann_file == 'val.json'


@pytest.mark.parametrize('name, text, said', [
    ('val.json', None, 'val not found; mmdet needs train.json and val.json with'),
    ('val.json', '{}', "val.json: 'images' is missing"),
    ('val.json', '{"categories": [{"id": 1, "name": "other"}], "images": [{"id": 1, "width": 9, '
     '"height": 9, "file_name": "a"}]}', "the classes of val are ['other'"),
    ('left', '', 'model.bbox_head has no num_classes to fill in'),
    ('left', 'panoptic', 'model.panoptic_head.num_stuff_classes=53 must be 0: the folder has')])
def test_what_cannot_be_filled_in_is_refused(tmp_path, name, text, said) -> None:
    folder = labelled(tmp_path, 'yolo')
    (folder / name).unlink(missing_ok=True)
    if text is not None:
        (folder / name).write_text(text)
    cfg = load_config('mmdet::mask2former/mask2former_r50_8xb2-lsj-50e_coco-panoptic.py' if
                      text == 'panoptic' else
                      'mmposenc::detection/small/retinanet_pvt-micro-peg_fpn_1xb4-12e_bccd.py')
    if name == 'left' and not text:
        del cfg.model.bbox_head['num_classes']
    with pytest.raises(ValueError) as error:
        point_to_folder(cfg, str(folder))
    assert said in str(error.value)


def test_a_hidden_folder_is_no_class(tmp_path) -> None:
    (folders_of_classes(tmp_path) / 'train' / '.cache').mkdir()
    cfg = load_config('mmposenc::classification/small/deit-micro-peg_1xb32-40e_mnist5k.py')
    with pytest.raises(ValueError, match='train/.cache is a hidden folder, which would be a class'):
        point_to_folder(cfg, str(tmp_path / 'mine'))


@pytest.mark.parametrize('layout', [
    ('annotations/instances_{}2017.json', '{}2017'), ('annotations/instances_{}.json', 'images/{}'),
    ('annotations/{}.json', 'images/{}'), ('{}/_annotations.coco.json', '{}')])
def test_layouts_of_coco_are_taken_as_they_are(tmp_path, capsys, layout) -> None:
    folder, cfg = labelled(tmp_path, 'yolo'), load_config(
        'mmposenc::detection/small/retinanet_pvt-micro-peg_fpn_1xb4-12e_trees.py')
    for part in ('train', 'val'):
        file, pictures = (folder / each.format(part) for each in layout)
        pictures.parent.mkdir(exist_ok=True)
        (folder / part).rename(pictures)
        file.parent.mkdir(exist_ok=True)
        (folder / f'{part}.json').rename(file)
    point_to_folder(cfg, str(folder))
    check_files(ParsedConfig(cfg), PHASES)
    assert cfg.val_evaluator.ann_file == str(folder / layout[0].format('val'))
    # Of 20 x 24 in 48 x 40, enlarged to 400 x 333: 167 x 200, beside a square anchor of 136.
    out = capsys.readouterr().out
    assert 'anchors: 0% of the training boxes overlap none by 0.4' in out
    assert '9 of 10): 16 to 16 pixels, median 16; suggested for ' in out, out
    cfg.model.bbox_head.anchor_generator.ratios = [0.1]
    point_to_folder(cfg, str(folder))
    assert 'anchors: 100% of the ' in capsys.readouterr().out


def test_the_recipe_for_own_boxes_has_an_anchor_for_each_shape() -> None:
    cfg = load_config('mmposenc::retinanet-pvt-peg-mine')
    sizes = [(640 * share, 640 * share / shape) for share in (0.1, 0.3, 0.9)
             for shape in (1, 2, 5, 12)]
    content = dict(images=[dict(id=1, width=640, height=640)], annotations=[
        dict(image_id=1, bbox=[0, 0, *each]) for size in sizes for each in (size, size[::-1])])
    overlaps = _best_overlaps(ParsedConfig(cfg), cfg.model.bbox_head.anchor_generator, content)
    assert overlaps.min() > 0.4 and np.median(overlaps) > 0.6


@pytest.mark.parametrize('low, high, side', [(28, 350, 480), (5, 40, 1280), (60, 600, 320)])
def test_suggested_sizes_and_anchors_fit_the_objects(low, high, side) -> None:
    sides = np.geomspace(low, high, 50)
    content = dict(images=[dict(id=1, width=640, height=480)], annotations=[
        dict(image_id=1, bbox=[0, 0, each, each]) for each in sides])
    line = object_sizes_text(*box_sizes(content))
    size, base = re.search(r'--size (\d+) .*octave_base_scale=(\S+?)(?=;|$)', line).groups()
    cfg, _ = config_trained_at_size(load_config('mmposenc::retinanet-pvt-peg-mine'), int(size))
    override_in_place(cfg, {'model.bbox_head.anchor_generator.octave_base_scale': float(base)})
    overlaps = _best_overlaps(ParsedConfig(cfg), cfg.model.bbox_head.anchor_generator, content)
    assert int(size) == side and np.quantile(overlaps, 0.05) > 0.4
    assert ('into tiles' in line) == (low == 5) and object_sizes_text([], []) == ''


@pytest.mark.parametrize('text, said', [('a\n\nb\n', 'classes.txt:2: the line is empty'),
                                        (None, 'does not name the classes')])
def test_lines_of_classes_count(tmp_path, text, said) -> None:
    file = labelled(tmp_path, 'masks') / 'classes.txt'
    file.unlink()
    if text:
        file.write_text(text)
    with pytest.raises(ValueError, match=said):
        point_to_folder(load_config(CAMVID), str(tmp_path / 'mine'))


@pytest.mark.slow
def test_it_trains_and_tests(tmp_path, capsys, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    config = detector_config(tmp_path / 'tiny.py', make_coco(tmp_path / 'other'))
    folder = labelled(tmp_path, 'yolo')
    options = [str(config), '--data', str(folder), '--work-dir', 'work']
    load_tool('train').main([*options, '--cfg-options', 'train_dataloader.batch_size=1'])
    assert 'mine: classes square, disc, ring' in capsys.readouterr().out
    load_tool('test').main([str(config), 'work/epoch_1.pth', *options[1:], '--show-dir', 'drawn',
                            '--cfg-options', 'model.test_cfg.score_thr=0'])
    assert list(Path('work').glob('*/*.json')) and len(list(Path('drawn').iterdir())) == 2
