"""COCO data sets with something wrong in them."""
from __future__ import annotations

import logging

import pytest
from mmengine.registry import DATASETS
from tinydata import make_coco, read_annotations, write_annotations

import mmposenc  # noqa: F401


@pytest.fixture
def root(tmp_path):
    return make_coco(tmp_path / 'data')


def build(root, classes=('square', 'disc'), **kwargs):
    import mmdet.datasets.transforms  # noqa: F401  (registers the pipeline's steps)
    return DATASETS.build(dict(
        type='mmposenc.CocoDataset', data_root=str(root), ann_file='annotations.json',
        data_prefix=dict(img='images/'), metainfo=dict(classes=classes),
        pipeline=[dict(type='mmposenc.LoadImageFromFile')], **kwargs))


def change(root, index=0, **values) -> None:
    data = read_annotations(root)
    data['annotations'][index].update(values)
    write_annotations(root, data['images'], data['annotations'])


@pytest.fixture
def warnings(caplog):
    """What mmengine's print_log says, as a list."""
    from mmengine.logging import MMLogger
    logger = MMLogger.get_instance('test_coco', log_level='WARNING')
    logger.addHandler(caplog.handler)
    with caplog.at_level(logging.WARNING):
        yield lambda: [record.getMessage() for record in caplog.records]
    logger.removeHandler(caplog.handler)


def test_a_good_data_set_equals_mmdets(root, warnings) -> None:
    from mmdet.datasets import CocoDataset
    ours = build(root)
    theirs = CocoDataset(data_root=str(root), ann_file='annotations.json',
                         data_prefix=dict(img='images/'),
                         metainfo=dict(classes=('square', 'disc')), pipeline=[])
    assert len(ours) == 4
    assert [ours.get_data_info(i) for i in range(4)] == [theirs.get_data_info(i) for i in range(4)]
    assert warnings() == []
    assert ours[1]['img'].shape == (64, 64, 3)


def test_boxes_without_area_are_dropped_and_counted(root, warnings) -> None:
    change(root, 0, bbox=[5, 5, 0, 10])
    change(root, 2, bbox=[5, 5, 10, -1])
    change(root, 3, bbox=[5, 5, 0.5, 10])
    change(root, 4, bbox=[500, 5, 10, 10])
    dataset = build(root)
    assert sum(len(dataset.get_data_info(i)['instances']) for i in range(4)) == 4
    assert len(warnings()) == 1
    for part in ('annotations.json: dropped annotations:', '2 with a box of zero area',
                 '1 with a box thinner than a pixel', '1 with a box outside the image'):
        assert part in warnings()[0]


def test_unknown_category_id_is_named(root) -> None:
    change(root, 3, category_id=99)
    with pytest.raises(ValueError, match=r"annotation 4 of image 'shape_1\.jpg' in .*annotations"
                                         r"\.json: category_id 99 .*\{1: 'square', 2: 'disc'\}"):
        build(root)


def test_category_that_is_not_a_class(root, warnings) -> None:
    with pytest.raises(ValueError, match=r"annotation 2 .* its category 'disc' is not in "
                                         r"metainfo\.classes: \['square'\]"):
        build(root, classes=('square',))
    dataset = build(root, classes=('square',), unknown_categories='drop')
    assert [len(dataset.get_data_info(i)['instances']) for i in range(4)] == [1] * 4
    assert any("4 of category 'disc'" in message for message in warnings())
    with pytest.raises(ValueError, match="unknown_categories='ignore' must be 'error' or 'drop'"):
        build(root, unknown_categories='ignore')


def test_classes_that_would_shift_the_labels(root) -> None:
    with pytest.raises(ValueError, match=r"\['triangle'\] are not among the categories"):
        build(root, classes=('square', 'triangle', 'disc'))
    with pytest.raises(ValueError, match=r"must be in the order .*: \['square', 'disc'\]"):
        build(root, classes=('disc', 'square'))


def test_truncated_image(root, warnings) -> None:
    path = root / 'images' / 'shape_2.jpg'
    path.write_bytes(path.read_bytes()[:700])
    with pytest.raises(ValueError, match=r"1 of 4 images of .* are broken:\n  .*shape_2\.jpg: "
                                         r".*truncated.*\n.*skip_broken_images=True"):
        build(root)
    dataset = build(root, skip_broken_images=True)
    assert len(dataset) == 3
    assert any('1 of 4 images' in message and 'skipped' in message and 'shape_2.jpg' in message
               for message in warnings())

    with pytest.raises(ValueError, match=r'broken image .*shape_2\.jpg: .*truncated'):
        build(root, check_images=False)[2]
    from mmengine.registry import TRANSFORMS
    load = TRANSFORMS.build(dict(type='mmposenc.LoadImageFromFile', ignore_empty=True))
    assert load(dict(img_path=str(path))) is None
    assert load(dict(img_path=str(root / 'images' / 'shape_1.jpg')))['img'].shape == (64, 64, 3)
    path.unlink()
    with pytest.raises(ValueError, match=r'shape_2\.jpg: No such file'):
        build(root)
