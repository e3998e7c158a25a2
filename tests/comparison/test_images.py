"""Results of each test image: kept by the test, resampled, and in the intervals of differences."""
from __future__ import annotations

import csv
import io
import json
import math
from dataclasses import fields, replace

import numpy as np
import pytest
import torch
from madeup_studies import study
from mmengine.evaluator import Evaluator
from mmengine.registry import init_default_scope
from scipy import stats
from tinystudies import tiny_study
from tinytasks import segmentor_config

from mmposenc import engine
from mmposenc.lab.compare.page.exports import results_csv
from mmposenc.lab.compare.page.report import page
from mmposenc.lab.compare.page.results import collect, write_results
from mmposenc.lab.compare.page.tables import differences
from mmposenc.lab.compare.running.runs import carry_out, read_record
from mmposenc.lab.compare.statistics.differences import contrast, judged
from mmposenc.lab.compare.statistics.images import (
    Boxes,
    Shares,
    by_images,
    image_spread,
    resampled,
)
from mmposenc.lab.compare.statistics.summary import summarize, values_at
from mmposenc.lab.compare.study.images import images_file, keep_images, read_images

BCCD = 'mmposenc::detection/small/retinanet_pvt-micro-peg_fpn_1xb4-12e_bccd.py'


def right(*answers):
    """A run's images, of a classification."""
    both = np.array(answers, float)[:, None]
    return Shares(both, np.ones_like(both))


def spread_of(runs, draws=1000):
    count = len(next(iter(runs.values()))[0].both)
    return image_spread(count, {name: [resampled(one, count, draws) for one in each]
                                for name, each in runs.items()})


def test_a_test_keeps_the_answer_to_each_image(finished, tmp_path):
    for run in finished.runs():
        for test in read_record(run)['tests']:
            held = np.load(images_file(run, test['factor']))
            assert held['both'].shape == held['either'].shape == (4, 1)
            found = read_images(images_file(run, test['factor']))
            assert found.number == 4 and found.value == pytest.approx(test['value'])
            # What an earlier version wrote.
            np.savez(tmp_path / 'old.npz', both=held['both'])
            assert np.array_equal(read_images(tmp_path / 'old.npz').drawn, found.drawn)


def test_a_segmentation_keeps_the_areas_of_each_image(tmp_path):
    cfg = engine.load_config(str(segmentor_config(tmp_path)))
    keep_images(cfg, tmp_path / 'images.npz')
    init_default_scope('mmseg')
    rng = np.random.default_rng(0)
    truth, guess = (torch.tensor(rng.integers(0, 2, (3, 1, 4, 5))) for _ in range(2))
    truth[0, 0, 0] = 255  # does not count
    evaluator = Evaluator(cfg.test_evaluator)
    evaluator.dataset_meta = dict(classes=('ground', 'thing'))
    evaluator.process([dict(gt_sem_seg=dict(data=t), pred_sem_seg=dict(data=p))
                       for t, p in zip(truth, guess, strict=True)], None)
    found = evaluator.evaluate(3)
    both, either = (np.load(tmp_path / 'images.npz')[name] for name in ('both', 'either'))
    for image in range(3):
        counts = truth[image] != 255
        for label in range(2):
            t, p = truth[image] == label, guess[image] == label
            assert both[image, label] == (t & p & counts).sum()
            assert either[image, label] == ((t | p) & counts).sum()
    assert read_images(tmp_path / 'images.npz').value == pytest.approx(found['mIoU'], abs=.005)


def detected(folder, images):
    """The AP of mmdet, and the file of each image, of boxes near the truth of some images and far
    from that of others; an image may be there twice."""
    truths, samples = [], []
    for number, image in enumerate(images, 1):
        rng = np.random.default_rng(image)
        count = rng.integers(1, 6)
        corners, sides = rng.integers(0, 400, (count, 2)), rng.integers(20, 120, (count, 2))
        labels = rng.integers(0, 3, count)
        truths += [dict(image_id=number, category_id=int(label) + 1, iscrowd=int(rng.random() < .1),
                        bbox=[*corner.tolist(), *side.tolist()], area=float(side.prod()))
                   for corner, side, label in zip(corners, sides, labels, strict=True)]
        moved = corners + rng.normal(0, 6, corners.shape)
        boxes = np.concatenate([moved, moved + sides], 1)
        extra = rng.random(count) < .5
        samples.append(dict(img_id=number, ori_shape=(640, 640), pred_instances=dict(
            bboxes=torch.tensor(np.concatenate([boxes, boxes[extra] + 200]), dtype=torch.float),
            labels=torch.tensor(np.r_[labels, labels[extra]]),
            scores=torch.tensor(rng.random(count + extra.sum()), dtype=torch.float))))
    (folder / 'truth.json').write_text(json.dumps(dict(
        images=[dict(id=n, width=640, height=640, file_name='') for n in range(1, len(images) + 1)],
        annotations=[dict(each, id=n) for n, each in enumerate(truths, 1)],
        categories=[dict(id=n, name=name) for n, name in
                    enumerate(('RBC', 'WBC', 'Platelets'), 1)])))
    cfg = engine.load_config(BCCD)
    cfg.test_evaluator.ann_file = str(folder / 'truth.json')
    keep_images(cfg, folder / 'images.npz')
    init_default_scope('mmdet')
    evaluator = Evaluator(cfg.test_evaluator)
    evaluator.dataset_meta = dict(classes=('RBC', 'WBC', 'Platelets'))
    evaluator.process(samples, None)
    return evaluator.evaluate(len(images))['coco/bbox_mAP'], folder / 'images.npz'


def test_ap_of_images_that_count_several_times_is_that_of_as_many_images(tmp_path):
    whole, file = detected(tmp_path, range(12))
    assert read_images(file).value == pytest.approx(whole, abs=5e-4) and .2 < whole < .9
    held = np.load(file)
    metric = Boxes(**{each.name: held[each.name] for each in fields(Boxes)})
    times = np.array([[2, 0, 1, 3, 1, 0, 0, 1, 1, 2, 1, 0], np.eye(12, dtype=int)[4] * 12])
    for draw, value in zip(times, metric(times.astype(float)), strict=True):
        expected, _ = detected(tmp_path, np.repeat(range(12), draw))
        assert value == pytest.approx(expected, abs=5e-4)


def test_a_detector_without_a_box_has_an_ap_of_zero(tmp_path):
    _, file = detected(tmp_path, range(3))
    held = np.load(file)
    none = replace(Boxes(**{each.name: held[each.name][:0] for each in fields(Boxes)}),
                   truths=held['truths'])
    assert none(np.ones((2, 3))).tolist() == [0, 0]


def test_resampling_images_gives_the_variance_of_a_mean_of_images():
    rng = np.random.default_rng(0)
    one, two = (right(*(rng.random(400) < share)) for share in (.7, .9))
    told = spread_of({'one': [one], 'two': [two]}, draws=8000)
    exact = 1e4 * np.cov(one.both[:, 0], two.both[:, 0]) / 400
    assert told['count'] == 400 and told['own'] == [0, 0]
    assert np.diag(told['covariance']) == pytest.approx(np.diag(exact), rel=.05)
    assert told['covariance'][0][1] == pytest.approx(exact[0, 1], abs=.05 * exact[0, 0])


def test_what_is_in_the_seeds_spread_already_is_not_counted_twice():
    """All images alike, each answer by chance: images add nothing to what seeds say."""
    rng = np.random.default_rng(1)
    runs = {name: [right(*(rng.random(500) < .8)) for _ in range(40)] for name in 'ab'}
    told = spread_of(runs, draws=2000)
    # The variance of one run is 1e4 * .8 * .2 / 500 = 3.2, of a mean of 40 of them .08.
    assert told['own'] == pytest.approx([.08, .08], rel=.1)
    assert np.diag(told['covariance']) == pytest.approx([.08, .08], rel=.25)


def values_of(runs):
    return {name: {n: 100 * float(one.both.mean()) for n, one in enumerate(each)}
            for name, each in runs.items()}


def test_the_interval_by_seeds_and_images_is_of_the_sum_of_the_variances():
    values = {'a': {0: 80., 1: 82., 2: 81.5}, 'b': {0: 75., 1: 74., 2: 76.5}}
    found = contrast(values, {'a': 1, 'b': -1})
    row = judged(found, True, 1.)
    spread = dict(count=101, encodings=['b', 'a'], own=[.1, .2], covariance=[[2., .5], [.5, 3.]])
    told = by_images(row, found, 'a', 'b', spread)
    images, seeds = 2 + 3 - 2 * .5, found.error ** 2
    whole = seeds + images - .3
    assert told['error'] == pytest.approx(math.sqrt(whole))
    assert told['share'] == pytest.approx(1 - seeds / whole)
    freedom = whole ** 2 / (seeds ** 2 / found.freedom + images ** 2 / 100)
    half = stats.t.isf(.025, freedom) * math.sqrt(whole)
    assert (told['low'], told['high']) == pytest.approx((row['mean'] - half, row['mean'] + half))
    assert by_images(row, found, 'a', 'lost', spread) is None


def test_differences_on_the_page_and_in_the_csv(tmp_path):
    rng = np.random.default_rng(2)
    easy = rng.random(200)
    runs = {name: [right(*(easy + .3 * rng.random(200) < share)) for _ in range(3)]
            for name, share in (('none', .9), ('peg', 1.1))}
    values = values_of(runs)
    made = study({name: {1.: list(each.values())} for name, each in values.items()}, images=dict(
        note='', sizes=[dict(factor=1., **spread_of(runs))]))
    told = summarize(made)
    row, = (each for each in told['differences'] if each['role'] == 'base')
    images = row['images']
    assert images['low'] < row['low'] < row['high'] < images['high'] and .3 < images['share'] < 1
    # As drawn again: standard errors of the difference over images, runs as they are.
    gaps = [np.mean([each.both[chosen].mean() for each in runs['peg']]) - np.mean(
        [each.both[chosen].mean() for each in runs['none']])
        for chosen in rng.integers(0, 200, (3000, 200))]
    assert images['error'] ** 2 - row['error'] ** 2 == pytest.approx(1e4 * np.var(gaps), rel=.25)
    lines = list(csv.DictReader(io.StringIO(results_csv(told))))
    assert [float(each['minus_base_images_low']) for each in lines if each['encoding'] == 'peg'
            ] == [images['low']] * 3
    assert {each['images'] for each in lines if each['encoding'] == 'peg'} == {'200'}
    table = differences(told, 1.)
    assert table.columns.count('By seeds and images') == 2
    assert {len(each) for each in table.rows} == {len(table.columns)} == {10}
    assert f'images {images["share"]:.0%}' in page(told, tmp_path)


def test_studies_of_earlier_versions_say_what_is_missing(copied):
    told = write_results(copied)
    count = {each['factor']: each['count'] for each in told['images']['sizes']}
    assert count == {1: 4, 2: 4} and told['images']['note'] == ''
    for run in copied.runs():
        if run.entry.name == 'peg':
            images_file(run, 1.).unlink()
    told = write_results(copied)
    assert told['images']['note'] == 'results of each image are not kept for peg'
    assert [each['encodings'] for each in told['images']['sizes']] == [['none'], ['none', 'peg']]
    assert told['images']['note'] in (copied.folder / 'report.html').read_text()
    del told['images']
    assert all(row['images'] is None for row in summarize(told)['differences'])


def test_a_run_that_goes_on_keeps_what_it_had(tmp_path):
    tiny = tiny_study(tmp_path, names=['none'])
    run, = tiny.runs()
    carry_out(tiny, run)
    before = images_file(run, 1.).read_bytes()
    record = json.loads(run.record_file.read_text())
    run.record_file.write_text(json.dumps({**record, 'status': 'running', 'tests': []}))
    images_file(run, 1.).unlink()  # killed during the test
    carry_out(tiny, run)
    assert np.array_equal(np.load(images_file(run, 1.))['both'],
                          np.load(io.BytesIO(before))['both'])
    size, = collect(tiny)['images']['sizes']
    assert size['encodings'] == ['none'] and values_at(collect(tiny), 1.)['none']
