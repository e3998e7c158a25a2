"""Tables of tests' metrics, which the quickstart prints."""
import json

import pytest

from mmposenc.engine.apps.report import metrics_table

COCO = {'coco/bbox_mAP': 0.25, 'coco/bbox_mAP_50': 0.5, 'coco/bbox_mAP_75': 0.0}


def write(folder, time, metrics):
    (folder / time).mkdir(parents=True)
    (folder / time / f'{time}.json').write_text(json.dumps(metrics))


def test_the_newest_test_counts(tmp_path):
    write(tmp_path, '20260101_120000', {**COCO, 'coco/bbox_mAP': 0.125})
    write(tmp_path, '20260101_130000', COCO)
    (tmp_path / '20260101_140000').mkdir()  # a test that was stopped
    (tmp_path / '20260101_140000' / 'other.json').write_text('{}')
    assert metrics_table({'first': tmp_path}) == ('           AP    AP50    AP75\n'
                                                  'first   0.250   0.500   0.000')


def test_the_table_of_segmentation(tmp_path):
    write(tmp_path / 'a', '1', {'aAcc': 97.5, 'mIoU': 91.234, 'mAcc': 95.0})
    assert metrics_table({'strip': tmp_path / 'a'}) == ('         mIoU    mAcc    aAcc\n'
                                                        'strip   91.23   95.00   97.50')
    write(tmp_path / 'b', '1', COCO)
    with pytest.raises(ValueError, match=r'a has no coco/bbox_mAP, .*; it has aAcc, mIoU, mAcc'):
        metrics_table({'strip': tmp_path / 'a', 'boxes': tmp_path / 'b'})
    write(tmp_path / 'c', '1', {'coco/bbox_mAP': 'x', 'coco/bbox_mAP_50': None})
    with pytest.raises(ValueError, match='c has no coco/bbox_mAP'):
        metrics_table({'text': tmp_path / 'c'})
    (tmp_path / 'c' / '1' / '1.json').write_text('{"a": ')
    with pytest.raises(ValueError, match='c/1/1.json does not hold the metrics of a test'):
        metrics_table({'cut': tmp_path / 'c'})
