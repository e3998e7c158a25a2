import json

import pytest

from mmposenc.engine.report import coco_table, latest_metrics


def write(folder, time, metrics):
    (folder / time).mkdir(parents=True)
    (folder / time / f'{time}.json').write_text(json.dumps(metrics))


def coco(value):
    return {'coco/bbox_mAP': value, 'coco/bbox_mAP_50': value * 2, 'coco/bbox_mAP_75': 0.0}


def test_the_newest_test_counts(tmp_path):
    write(tmp_path, '20260101_120000', coco(0.1))
    write(tmp_path, '20260101_130000', coco(0.2))
    (tmp_path / '20260101_140000').mkdir()  # a test that was stopped
    (tmp_path / '20260101_140000' / 'other.json').write_text('{}')
    assert latest_metrics(tmp_path) == coco(0.2)


def test_the_table(tmp_path):
    write(tmp_path / 'a', '1', coco(0.25))
    write(tmp_path / 'b', '1', coco(0.3333))
    assert coco_table({'first': tmp_path / 'a', 'the second': tmp_path / 'b'}) == (
        '                AP    AP50    AP75\n'
        'first        0.250   0.500   0.000\n'
        'the second   0.333   0.667   0.000')


def test_what_is_not_there_is_said(tmp_path):
    with pytest.raises(FileNotFoundError, match='a holds no metrics of a test'):
        coco_table({'a': tmp_path / 'a'})
    write(tmp_path, '1', {'accuracy': 1.0})
    with pytest.raises(ValueError, match=r'has no coco/bbox_mAP, .*; it has accuracy'):
        coco_table({'a': tmp_path})
