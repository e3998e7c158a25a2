"""Checks of local COCO and ADE20K copies, on tiny copies made here."""
import json
import os
import shutil

import pytest
from PIL import Image

from mmposenc.engine.prepare.copies import check_ade20k, check_coco

COCO_PARTS = (('train2017', 'annotations/instances_train2017.json', 5),
              ('val2017', 'annotations/instances_val2017.json', 3))
ADE_PARTS = (('training', 4), ('validation', 2))


@pytest.fixture
def coco(tmp_path):
    root = tmp_path / 'coco'
    (root / 'annotations').mkdir(parents=True)
    for folder, annotation, count in COCO_PARTS:
        (root / folder).mkdir()
        names = [f'{index:012d}.jpg' for index in range(count)]
        for name in names:
            Image.new('RGB', (8, 6)).save(root / folder / name)
        (root / annotation).write_text(json.dumps(
            {'images': [{'id': i, 'file_name': name} for i, name in enumerate(names)]}))
    return root


@pytest.fixture
def ade(tmp_path):
    root = tmp_path / 'ade'
    for part, count in ADE_PARTS:
        for kind, ending, mode in (('images', 'jpg', 'RGB'), ('annotations', 'png', 'L')):
            folder = root / kind / part
            folder.mkdir(parents=True)
            for index in range(count):
                Image.new(mode, (8, 6)).save(folder / f'{part}_{index}.{ending}')
    return root


def snapshot(root):
    return {path: path.stat().st_mtime_ns for path in root.rglob('*')}


def test_a_whole_coco_copy_has_no_problems_and_stays_as_it_is(coco):
    before = snapshot(coco)
    assert check_coco(coco, COCO_PARTS) == []
    assert snapshot(coco) == before


def test_the_true_counts_are_the_default(coco):
    text = '\n'.join(check_coco(coco))
    assert 'instances_train2017.json has 5 images, expected 118287' in text
    assert 'instances_val2017.json has 3 images, expected 5000' in text


def move(root, source, target):
    (root / target).parent.mkdir(exist_ok=True)
    (root / source).rename(root / target)


def cut(path, kept):
    path.write_bytes(path.read_bytes()[:kept])


VAL = 'annotations/instances_val2017.json'
#: What happens to a copy, and the problem that is told; {} is its folder.
COCO_DAMAGE = [
    (lambda root: shutil.rmtree(root / 'val2017'), 'folder {}/val2017 is missing'),
    (lambda root: move(root, 'train2017', 'images/train2017'),
     'folder {}/train2017 is misplaced: it is at {}/images/train2017'),
    (lambda root: move(root, VAL, 'instances_val2017.json'),
     'file {}/' + VAL + ' is misplaced: it is at {}/instances_val2017.json'),
    (lambda root: cut(root / VAL, 0), '{}/' + VAL + ' is empty'),
    (lambda root: cut(root / VAL, -1),
     '{}/' + VAL + ' is cut off: it does not end with a closing brace'),
    (lambda root: (root / 'train2017' / '000000000003.jpg').unlink(),
     '{}/train2017 lacks 1 of 5 annotated pictures: 000000000003.jpg'),
    (lambda root: shutil.copy(root / 'val2017' / '000000000001.jpg', root / 'val2017' / 'a.jpg'),
     '{}/val2017 holds 1 files that are not among the annotated pictures: a.jpg'),
    (lambda root: [path.unlink() for path in (root / 'val2017').iterdir()],
     '{}/val2017 is empty'),
    (lambda root: cut(root / 'val2017' / '000000000002.jpg', -40),
     '{}/val2017/000000000002.jpg: ')]


@pytest.mark.parametrize('damage, expected', COCO_DAMAGE, ids=[text for _, text in COCO_DAMAGE])
def test_each_damage_of_coco_is_the_one_problem(coco, damage, expected):
    damage(coco)
    (problem,) = check_coco(coco, COCO_PARTS)
    assert problem.startswith(expected.replace('{}', str(coco)))


def test_a_name_that_is_no_text_is_found(coco):
    name = coco / COCO_PARTS[0][1]
    name.write_bytes(name.read_bytes().replace(b'000000000001.jpg', b'\xff.jpg'))
    assert '000000000001.jpg' in '\n'.join(check_coco(coco, COCO_PARTS))
    picture = coco / 'train2017' / '000000000001.jpg'
    picture.rename(picture.with_name(os.fsdecode(b'\xff.jpg')))
    assert check_coco(coco, COCO_PARTS) == []


def test_a_whole_ade20k_copy_has_no_problems_and_stays_as_it_is(ade):
    before = snapshot(ade)
    assert check_ade20k(ade, ADE_PARTS) == []
    assert snapshot(ade) == before
    assert f'{ade}/images/training has 4 .jpg files, expected 20210' in check_ade20k(ade)


def ade_parent(root):
    for name in ('images', 'annotations'):
        move(root, name, f'ADEChallengeData2016/{name}')


LABEL = 'annotations/validation/validation_0.png'
ADE_DAMAGE = [
    (ade_parent, ['{} holds the folder ADEChallengeData2016: give {}/ADEChallengeData2016']),
    (lambda root: shutil.rmtree(root / 'annotations'),
     ['folder {}/annotations/training is missing',
      'folder {}/annotations/validation is missing']),
    (lambda root: move(root, 'annotations/training/training_1.png',
                       'annotations/training/other.png'),
     ['{}/annotations/training lacks 1 of 4 label maps of {}/images/training: training_1',
      '{}/annotations/training holds 1 files that are not among the label maps of '
      '{}/images/training: other']),
    (lambda root: Image.new('L', (8, 6), 151).save(root / LABEL),
     ['{}/' + LABEL + ': holds the label 151 in 48 pixels; labels must be from 0 to 150, or 0 to '
      'be ignored']),
    (lambda root: Image.new('L', (6, 8)).save(root / LABEL),
     ['{}/' + LABEL + ': its size is 6x8, but {}/images/validation/validation_0.jpg has 8x6']),
    (lambda root: Image.new('RGB', (8, 6)).save(root / LABEL),
     ['{}/' + LABEL + ': its mode is RGB; one channel of 8 bits is required'])]


@pytest.mark.parametrize('damage, expected', ADE_DAMAGE, ids=[text[0] for _, text in ADE_DAMAGE])
def test_each_damage_of_ade20k_is_said(ade, damage, expected):
    damage(ade)
    assert check_ade20k(ade, ADE_PARTS) == [text.replace('{}', str(ade)) for text in expected]


def test_a_path_that_is_no_folder(tmp_path):
    assert check_coco(tmp_path / 'x') == check_ade20k(tmp_path / 'x') == [
        f'{tmp_path}/x is not a folder']
