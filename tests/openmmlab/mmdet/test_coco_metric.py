"""A detector that predicts what its data set loaded has an AP of 1, whatever is in the file."""
import codecs
import os

import pytest
import torch
from helpers.default_scope import scope_fixture
from helpers.tiny_data import coco_node, make_coco, rewrite_annotations
from helpers.tiny_run import runner
from mmengine.registry import DATASETS, METRICS, DefaultScope, Registry

from mmposenc.engine.config.checked_classes import build_checked, with_checked_classes
from mmposenc.engine.training.monitored import names_of_results

scope = scope_fixture('mmdet')


def data_of(root, **options):
    return coco_node(root, type='CocoDataset', test_mode=True, pipeline=[], **options)


def build(root, **options):
    import mmdet.datasets.transforms  # noqa: F401  (registers the pipeline's steps)
    return DATASETS.build(with_checked_classes(data_of(root, **options)))


def rewritten(root, change):
    """A data set after ``change(annotation, its number)`` of every annotation."""
    rewrite_annotations(root, lambda data: [
        change(annotation, number) for number, annotation in enumerate(data['annotations'])])
    return build(root)


def samples(dataset):
    """What a perfect detector predicts, as dicts of data samples."""
    for index in range(len(dataset)):
        info = dataset[index]
        boxes = [instance['bbox'] for instance in info['instances']]
        labels = [instance['bbox_label'] for instance in info['instances']]
        yield dict(img_id=info['img_id'], img_path=info['img_path'],
                   ori_shape=(info['height'], info['width']), pred_instances=dict(
                       bboxes=torch.tensor(boxes).reshape(-1, 4), labels=torch.tensor(labels),
                       scores=torch.full((len(boxes),), 0.9)))


def score(dataset, predictions=None, truth=True, **options):
    """AP of predictions, by default those of a perfect detector, by the metric of a config."""
    metric = METRICS.build(with_checked_classes(dict(type='CocoMetric', **options)))
    metric.dataset_meta = dataset.metainfo
    if truth:
        metric.set_ground_truth(dataset)
    metric.process({}, predictions or list(samples(dataset)))
    return metric.evaluate(len(dataset))


@pytest.mark.parametrize('change', [
    lambda ann, i: ann.update(id=i),
    lambda ann, i: (ann.pop('area'), ann.pop('iscrowd')),
    lambda ann, i: ann.update(ignore=int(i in (1, 4))),
    lambda ann, i: ann.update(area=0 if i == 3 else ann['area']),
    lambda ann, i: ann.update(bbox=[3, 4, 0, 9] if i == 2 else ann['bbox']),
    lambda ann, i: ann.update(bbox=[900, 4, 9, 9] if i == 5 else ann['bbox']),
    lambda ann, i: ann.update(iscrowd=int(i == 6))])
def test_odd_annotations(root, change) -> None:
    data, file = rewritten(root, change), str(root / 'annotations.json')
    assert score(data)['coco/bbox_mAP'] == 1
    assert score(data, list(samples(data))[:3], truth=False, ann_file=file)['coco/bbox_mAP'] == 1


def test_a_byte_order_mark_a_part_of_the_images_and_no_data_set(root) -> None:
    file = root / 'annotations.json'
    assert score(build(root), truth=False, ann_file=str(file))['coco/bbox_mAP'] == 1
    file.write_bytes(codecs.BOM_UTF8 + file.read_bytes())
    assert score(build(root, indices=2))['coco/bbox_mAP'] == 1


def test_the_evaluator_names_another_file(root, tmp_path, said) -> None:
    other = make_coco(tmp_path / 'other', images=6, seed=5) / 'annotations.json'
    assert score(build(root), ann_file=str(other))['coco/bbox_mAP'] == 1
    message, = (text for _, text in said if str(other) in text)
    assert str(root / 'annotations.json') in message
    nothing = [{**each, 'pred_instances': {key: value[:0] for key, value in
                                           each['pred_instances'].items()}}
               for each in samples(build(root))]
    assert score(build(root), nothing) == {}
    assert f'nothing was found in the {len(nothing)} images' in str(said)


def test_random_boxes_and_masks_score_as_by_the_metric_whose_place_it_takes(tmp_path) -> None:
    """Which is FasterCocoMetric's, of OneDL's mmdet; it evaluates by another library."""
    from mmdet import evaluation
    if not hasattr(evaluation, 'FasterCocoMetric'):
        pytest.skip("OpenMMLab's mmdet has no FasterCocoMetric")
    dataset = build(make_coco(tmp_path / 'coco', images=12))
    drawn, predictions = torch.Generator().manual_seed(0), list(samples(dataset))
    for prediction in predictions:
        boxes = prediction['pred_instances']['bboxes'].repeat(4, 1)
        boxes = boxes + torch.randn(boxes.shape, generator=drawn) * 3
        height, width = prediction['ori_shape']
        rows, cols = torch.arange(height)[:, None], torch.arange(width)
        left, top, right, bottom = boxes[..., None, None].unbind(1)
        masks = (rows >= top) & (rows < bottom) & (cols >= left) & (cols < right)
        prediction['pred_instances'] = dict(
            bboxes=boxes, labels=torch.randint(0, 2, (len(boxes),), generator=drawn),
            scores=torch.rand(len(boxes), generator=drawn), masks=masks)
    options = dict(ann_file=str(tmp_path / 'coco' / 'annotations.json'), classwise=True,
                   metric=['bbox', 'segm'], metric_items=['mAP', 'mAP_50', 'mAP_75', 'AR@100'])
    theirs = evaluation.FasterCocoMetric(**options)
    theirs.dataset_meta = dataset.metainfo
    theirs.process({}, predictions)
    numbers = theirs.evaluate(len(dataset))
    assert score(dataset, predictions, **options) == numbers
    metric = METRICS.build(with_checked_classes(dict(type='CocoMetric', metric=['bbox', 'segm'])))
    assert names_of_results(metric) == {*score(dataset, predictions, metric=['bbox', 'segm'])}
    assert len({value for value in numbers.values() if 0.1 < value < 0.9}) == 8


@pytest.mark.parametrize('mask, said', [
    (None, 'segmentation=None must be'), ([], 'must be a list of polygons'),
    ([[1, 2], [9, 2], [9, 9]], 'must be a list of polygons'), ([[[1, 2]]], 'must be a list of'),
    ({'size': [64, 64], 'counts': '1'}, 'runs that cover 64x64 pixels')])
def test_masks_that_the_metric_needs_are_checked_before(root, mask, said) -> None:
    dataset = rewritten(root, lambda ann, i: ann.update(
        segmentation=mask if i == 3 else [[1, 2, 3, 4], [5, 5, 20, 5, 20, 20, 5, 20]]))
    metric = METRICS.build(with_checked_classes(dict(type='CocoMetric', metric=['bbox', 'segm'])))
    with pytest.raises(ValueError, match=rf"annotation 4 of .*annotations\.json: .*{said}"):
        metric.set_ground_truth(dataset)
    dataset = rewritten(root, lambda ann, i: i == 3 and ann.update(segmentation=[[1, 2, 3, 4]]))
    metric.set_ground_truth(dataset)
    assert [len(ann['segmentation']) for ann in metric._coco_api.anns.values()] == [1] * 7


def test_several_data_sets_are_refused(root) -> None:
    alone, both = (DATASETS.build(with_checked_classes(dict(type='ConcatDataset', datasets=[
        data_of(root)] * number))) for number in (1, 2))
    assert score(alone)['coco/bbox_mAP'] == 1
    with pytest.raises(ValueError, match='is a ConcatDataset of 2 data sets, .* test each by its'):
        score(both)


@pytest.mark.parametrize('scope_name, kind, expected', [
    ('mmdet', 'CocoMetric', 'mmposenc.CocoMetric'),
    ('mmdet', 'FasterCocoMetric', 'mmposenc.CocoMetric'), ('mmseg', 'CocoMetric', 'CocoMetric'),
    ('mmseg', 'mmdet.CocoMetric', 'mmposenc.CocoMetric'), ('mmdet', 'VOCMetric', 'VOCMetric')])
def test_which_classes_are_replaced(scope_name, kind, expected) -> None:
    with DefaultScope.overwrite_default_scope(scope_name):
        assert with_checked_classes([dict(type=kind)]) == [dict(type=expected)]


def test_scripts_build_these_classes(root, monkeypatch) -> None:
    monkeypatch.setattr(Registry, 'build', Registry.build)  # put back afterwards
    build_checked()
    for registry, node in ((METRICS, dict(type='CocoMetric')), (DATASETS, data_of(root))):
        assert type(registry.build(node)).__module__.startswith('mmposenc.')


def runner_of(root, tmp_path, evaluator):
    return runner(tmp_path / 'work', default_scope='mmdet', test_cfg=dict(), test_dataloader=dict(
        batch_size=2, sampler=dict(type='DefaultSampler', shuffle=False), dataset=data_of(root)),
        test_evaluator=evaluator)


def test_the_runner_evaluates_what_it_loads(root, tmp_path) -> None:
    """A config of mmdet's own classes, ids from 0 and another file in the evaluator."""
    from mmposenc.engine.training.runner import Runner
    rewritten(root, lambda annotation, number: annotation.update(id=number))
    other = make_coco(tmp_path / 'other', seed=3) / 'annotations.json'
    run = runner_of(root, tmp_path, [dict(type='CocoMetric', ann_file=str(other))])
    assert isinstance(run, Runner)
    loop = run.build_test_loop(run._test_loop)
    metric, = loop.evaluator.metrics
    metric.process({}, list(samples(loop.dataloader.dataset)))
    assert loop.evaluator.evaluate(4)['coco/bbox_mAP'] == 1
    assert os.path.samefile(loop.dataloader.dataset.ann_file, root / 'annotations.json')


def test_two_metrics_of_one_name_are_refused(root, tmp_path) -> None:
    metrics = [dict(type='CocoMetric', ann_file=str(root / 'annotations.json'))] * 2
    run = runner_of(root, tmp_path, metrics)
    with pytest.raises(ValueError, match="prefix='coco' and metric='bbox'.*its own prefix"):
        run.build_test_loop(run._test_loop)
