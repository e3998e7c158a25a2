"""COCO data sets with something wrong in them: every fault is named, counted or refused."""
from pathlib import Path

import numpy as np
import pytest
import yaml
from helpers.tiny_data import coco_node, rewrite_annotations
from mmengine.registry import DATASETS, TRANSFORMS
from PIL import Image

from mmposenc.openmmlab.datasets.coco_files import run_lengths
from mmposenc.openmmlab.mmdet.coco_dataset import CheckedCOCO


def build(root, classes=('square', 'disc'), **options):
    import mmdet.datasets.transforms  # noqa: F401  (registers the pipeline's steps)
    return DATASETS.build(coco_node(root, **{
        'pipeline': [dict(type='mmposenc.LoadImageFromFile')],
        'metainfo': dict(classes=classes), **options}))


def test_a_good_data_set_equals_mmdets(root, warnings) -> None:
    from mmdet.datasets import CocoDataset
    ours = build(root)
    options = coco_node(root, pipeline=[])
    options.pop('type')
    theirs = CocoDataset(**options)
    assert len(ours) == 4
    assert [ours.get_data_info(i) for i in range(4)] == [theirs.get_data_info(i) for i in range(4)]
    assert warnings() == []
    assert ours[1]['img'].shape == (64, 64, 3)


def test_boxes_without_area_are_dropped_and_counted(root, warnings) -> None:
    for index, box in {0: [5, 5, 0, 10], 2: [5, 5, 10, -1], 3: [5, 5, 0.5, 10],
                       4: [500, 5, 10, 10]}.items():
        rewrite_annotations(root, put('annotations', index, bbox=box))
    dataset = build(root)
    assert sum(len(dataset.get_data_info(i)['instances']) for i in range(4)) == 4
    assert warnings() == [f'{root}/annotations.json: dropped annotations: 4 marked to be ignored, '
                          'of area 0, or with a box of less than a pixel in the image']


def test_images_that_the_filter_leaves_out_are_counted(root, warnings) -> None:
    rewrite_annotations(root, lambda data: [
        each.update(width=999) for each in data['images'][:2]])
    rewrite_annotations(root, lambda data: [
        each.update(height=999) for each in data['images'][1:]])
    assert len(build(root, check_images=False, filter_cfg=dict(min_size=99))) == 1
    assert warnings() == [f'{root}/annotations.json: 3 of 4 images are left out of training, by '
                          "filter_cfg={'min_size': 99}: they are smaller, or have no object"]
    with pytest.raises(ValueError, match='4 of 4 images are left out .*; set filter_cfg'):
        build(root, check_images=False, filter_cfg=dict(min_size=9999))


def test_category_that_is_not_a_class(root, warnings) -> None:
    with pytest.raises(ValueError, match=r"annotation 2 .*'disc' is not in .*: \['square'\]"):
        build(root, classes=('square',))
    dataset = build(root, classes=('square',), unknown_categories='drop')
    assert [len(dataset.get_data_info(i)['instances']) for i in range(4)] == [1] * 4
    assert any("4 of category 'disc'" in message for message in warnings())
    with pytest.raises(ValueError, match="unknown_categories='ignore' must be 'error' or 'drop'"):
        build(root, unknown_categories='ignore')


def test_a_class_without_an_object_is_named_before_training(root, warnings) -> None:
    rewrite_annotations(root, put_all(category_id=1))
    build(root, test_mode=True)
    assert warnings() == []
    build(root)
    assert warnings() == [f"{root}/annotations.json has no object of 'disc'; a model trained on it "
                          'will not find any']
    rewrite_annotations(root, lambda data: [
        each.update(category_id=2, iscrowd=1) for each in data['annotations'][:3]])
    build(root)
    assert warnings()[-1].endswith('not find any; 3 marked iscrowd=1, which training and '
                                   'evaluation ignore: if they are objects, set it to 0')
    rewrite_annotations(root, put_all(iscrowd=1))
    build(root, test_mode=True)
    assert 'has no object to evaluate with, so there is no AP; 8 marked iscrowd=1' in warnings()[-1]


def test_two_corners_in_place_of_a_size(root, warnings) -> None:
    rewrite_annotations(root, lambda data: [each.update(bbox=[
        40, 20, 40 + each['bbox'][2], 20 + each['bbox'][3]]) for each in data['annotations']])
    build(root)
    assert '8 of 8 boxes reach over the right or lower edge' in warnings()[-1]
    assert 'such as that of annotation 1; bbox must be left, top, width' in warnings()[-1]


def test_the_category_that_roboflow_adds(root, warnings) -> None:
    rewrite_annotations(root, lambda data: data['categories'].insert(0, dict(id=0, name='all')))
    build(root, classes=('all', 'square', 'disc'))
    assert "no object of 'all'; a model trained on it will not find any (delete" in warnings()[-1]


def test_compressed_runs_are_those_of_pycocotools() -> None:
    from pycocotools import mask
    rng = np.random.default_rng(0)
    for share in (0.0, 0.001, 0.5, 1.0):
        pixels = np.asfortranarray(rng.random((300, 401)) < share, dtype=np.uint8)
        runs = run_lengths(mask.encode(pixels)['counts'].decode())
        flat = pixels.ravel(order='F')
        assert np.array_equal(np.repeat(np.arange(len(runs)) % 2, runs), flat)


@pytest.mark.parametrize('crowd', [0, 1])
def test_masks_as_run_lengths_are_trained_on(root, warnings, crowd) -> None:
    """mmdet ignores them where poly2mask is False; of crowds it ignores all."""
    rewrite_annotations(root, put('annotations', 1, segmentation=RLE, iscrowd=crowd))
    dataset = build(root, pipeline=[
        dict(type='mmposenc.LoadImageFromFile'),
        dict(type='mmdet.LoadAnnotations', with_bbox=True, with_mask=True, poly2mask=False)])
    loaded = dataset[0]
    assert loaded['gt_ignore_flags'].tolist() == [False, bool(crowd)]
    if not crowd:
        assert loaded['gt_masks'].masks[1].sum() == 50
    assert ('poly2mask=True' in ''.join(warnings())) == (not crowd)


def test_classes_that_would_shift_the_labels(root) -> None:
    with pytest.raises(ValueError, match=r"must be in the order .*: \['square', 'disc'\]"):
        build(root, classes=('disc', 'square'))


def test_truncated_image(root) -> None:
    path = root / 'images' / 'shape_2.jpg'
    path.write_bytes(path.read_bytes()[:700])
    with pytest.raises(ValueError, match=r'1 of 4 .*\n  .*shape_2\.jpg: .*\n.*check_images=False'):
        build(root)
    with pytest.raises(ValueError, match=r'broken image .*shape_2\.jpg: .*truncated'):
        build(root, check_images=False)[2]
    load = TRANSFORMS.build(dict(type='mmposenc.LoadImageFromFile', ignore_empty=True))
    assert load(dict(img_path=str(path))) is None
    path.unlink()
    with pytest.raises(ValueError, match=r'shape_2\.jpg: No such file'):
        build(root)


def put(section, index, **values):
    return lambda data: data[section][index].update(values)


def put_all(**values):
    """Into all annotations."""
    return lambda data: [each.update(values) for each in data['annotations']]


def drop(section, index, key):
    return lambda data: data[section][index].pop(key)


def changed(data, path, value):
    """Sets what a path such as annotations.0.bbox leads to."""
    *way, last = path.split('.')
    nodes = [data]
    for part in way:
        nodes = [each for node in nodes for each in (
            node if part == '*' else [node[int(part) if part.isdigit() else part]])]
    for node in nodes:
        if value == 'gone':
            node.pop(last)
        else:
            node.append(value) if last == '+' else node.update({last: value})


WRONG = yaml.safe_load(Path(__file__).with_name('wrong_annotations.yaml').read_text())


@pytest.mark.parametrize('changes, message', [
    ({'annotations.0.bbox': [0, 0, 10 ** 400, 5]}, 'must be four finite numbers'),
    *((each, said) for said, some in WRONG['refused'].items() for each in some)])
def test_refused(root, changes, message) -> None:
    rewrite_annotations(root, lambda data: [
        changed(data, path, value) for path, value in changes.items()])
    with pytest.raises(ValueError, match=message) as error:
        build(root)
    assert 'annotations.json' in str(error.value)


RLE = {'size': [44, 64], 'counts': [100, 50, 44 * 64 - 150]}


@pytest.mark.parametrize('mask, message', [
    (each, said) for said, some in WRONG['masks'].items() for each in some])
def test_masks_that_are_none_are_refused_where_masks_are_loaded(root, mask, message) -> None:
    masks = [dict(type='mmposenc.LoadImageFromFile'),
             dict(type='mmdet.LoadAnnotations', with_bbox=True, with_mask=True)]
    square = [[5, 5, 20, 5, 20, 20, 5, 20]]
    rewrite_annotations(root, put_all(segmentation=square))
    rewrite_annotations(root, put('annotations', 1, segmentation=RLE))
    loaded = build(root, pipeline=masks)[0]['gt_masks'].masks
    assert [int(mask.sum()) for mask in loaded] == [225, 50]
    rewrite_annotations(root, put('annotations', 0, segmentation=mask))
    with pytest.raises(ValueError, match=f"annotation 1 of image 'shape_0.jpg' in .*: .*{message}"):
        build(root, pipeline=masks)
    assert len(build(root)) == 4  # boxes alone do not need them


def test_objects_without_a_mask_are_counted(root, warnings) -> None:
    """mmdet ignores what has no polygon of three corners."""
    rewrite_annotations(root, put_all(segmentation=[[1, 2, 3, 4], [1, 2, 3, 4, 5, 6, 7]]))
    rewrite_annotations(root, put('annotations', 3, ignore=1))
    masks = dict(pipeline=[dict(type='mmdet.LoadAnnotations', with_bbox=True, with_mask=True)])
    with pytest.raises(ValueError, match='no annotation to train on; dropped: 8 with a polygon of'):
        build(root, **masks)
    for number in (0, 1):
        rewrite_annotations(root, put('annotations', number, segmentation=RLE))
    build(root, **masks)
    assert warnings() == [f'{root}/annotations.json: dropped annotations: 6 with a polygon of less '
                          'than three corners, 1 marked to be ignored, of area 0, or with a box of '
                          'less than a pixel in the image']


def test_json_of_any_encoding_and_no_json(root) -> None:
    file = root / 'annotations.json'
    text = file.read_text()
    for encoding in ('utf-8-sig', 'utf-16', 'utf-32'):
        file.write_text(text, encoding=encoding)
        assert len(build(root)) == 4
    for text in ('', '{"images": [', '[' * 100_000, '\x00', '[1, 2]'):
        file.write_text(text)
        with pytest.raises(ValueError, match=r'annotations\.json (is not a complete JSON file|'
                                             'holds a list; a COCO file must be a dict)'):
            build(root)


def test_foreign_annotations_are_counted_and_a_missing_area_is_the_boxs(root, warnings) -> None:
    whole = build(root)
    rewrite_annotations(root, lambda data: data['annotations'].append(
        dict(data['annotations'][0], id=100, image_id=99)))
    rewrite_annotations(root, drop('annotations', 0, 'area'))
    dataset = build(root)
    assert [dataset.get_data_info(i) for i in range(4)] == [whole.get_data_info(i)
                                                            for i in range(4)]
    loaded = CheckedCOCO(f'{root}/annotations.json').anns
    assert all(each['area'] == each['bbox'][2] * each['bbox'][3] for each in loaded.values())
    assert warnings() == [f'{root}/annotations.json: dropped annotations: 1 of an image that the '
                          'file does not have']
    rewrite_annotations(root, lambda data: data.pop('annotations'))
    assert len(build(root, test_mode=True)) == 4  # a test set needs none


def test_a_turned_picture_is_turned_and_its_size_is_checked(root) -> None:
    path, exif = root / 'images' / 'shape_0.jpg', Image.Exif()
    exif[0x0112] = 6  # 64 x 44 as stored, 44 x 64 as shown
    Image.open(path).save(path, exif=exif)
    with pytest.raises(ValueError, match=r'shape_0\.jpg: .* is 44x64 \(its EXIF .* say'):
        build(root)
    rewrite_annotations(root, put('images', 0, width=44, height=64))
    assert build(root)[0]['img'].shape[:2] == (64, 44)


def test_an_image_that_a_step_can_not_take_is_named(root) -> None:
    Image.fromarray(np.zeros((1, 10_000, 3), np.uint8)).save(root / 'images' / 'shape_1.jpg')
    rewrite_annotations(root, put('images', 1, width=10_000, height=1))
    dataset = build(root, pipeline=[
        dict(type='mmposenc.LoadImageFromFile'),
        dict(type='mmdet.Resize', scale=(1333, 800), keep_ratio=True)])
    with pytest.raises(ValueError, match=r'images/shape_1\.jpg: '):
        dataset[1]
    assert dataset[0]['img'].shape[0] > 1
