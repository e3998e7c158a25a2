import json

import pytest

from mmposenc.engine.apps.report import latest_metrics, metrics_table


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
    assert metrics_table({'first': tmp_path / 'a', 'the second': tmp_path / 'b'}) == (
        '                AP    AP50    AP75\n'
        'first        0.250   0.500   0.000\n'
        'the second   0.333   0.667   0.000')


def test_what_is_not_there_is_said(tmp_path):
    with pytest.raises(FileNotFoundError, match='a holds no metrics of a test'):
        metrics_table({'a': tmp_path / 'a'})
    write(tmp_path, '1', {'accuracy': 1.0})
    with pytest.raises(ValueError, match=r'has no coco/bbox_mAP, .*; it has accuracy'):
        metrics_table({'a': tmp_path})


def test_the_table_of_segmentation(tmp_path):
    write(tmp_path / 'a', '1', {'aAcc': 97.5, 'mIoU': 91.234, 'mAcc': 95.0})
    assert metrics_table({'strip': tmp_path / 'a'}) == ('         mIoU    mAcc    aAcc\n'
                                                        'strip   91.23   95.00   97.50')
    write(tmp_path / 'b', '1', coco(0.1))
    with pytest.raises(ValueError, match=r'a has no coco/bbox_mAP, .*; it has aAcc, mIoU, mAcc'):
        metrics_table({'strip': tmp_path / 'a', 'boxes': tmp_path / 'b'})
