"""Checks of local COCO and ADE20K copies, on tiny copies made here."""
import json
import os
import shutil

import numpy as np
import pytest
from PIL import Image

from mmposenc.engine.prepare.ade20k import check_ade20k
from mmposenc.engine.prepare.coco import annotated_names, check_coco

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


def coco_no_folder(root):
    shutil.rmtree(root / 'val2017')
    return f'folder {root}/val2017 is missing'


def coco_misplaced_folder(root):
    (root / 'images').mkdir()
    shutil.move(root / 'train2017', root / 'images')
    return f'folder {root}/train2017 is misplaced: it is at {root}/images/train2017'


def coco_misplaced_file(root):
    (root / 'annotations' / 'instances_val2017.json').rename(root / 'instances_val2017.json')
    return (f'file {root}/annotations/instances_val2017.json is misplaced: '
            f'it is at {root}/instances_val2017.json')


def coco_empty_file(root):
    (root / 'annotations' / 'instances_val2017.json').write_text('')
    return f'{root}/annotations/instances_val2017.json is empty'


def coco_cut_file(root):
    path = root / 'annotations' / 'instances_val2017.json'
    path.write_text(path.read_text()[:-1])
    return f'{path} is cut off: it does not end with a closing brace'


def coco_lost_picture(root):
    (root / 'train2017' / '000000000003.jpg').unlink()
    return f'{root}/train2017 lacks 1 of 5 annotated pictures: 000000000003.jpg'


def coco_extra_picture(root):
    shutil.copy(root / 'val2017' / '000000000001.jpg', root / 'val2017' / 'copy.jpg')
    return f'{root}/val2017 holds 1 files that are not among the annotated pictures: copy.jpg'


def coco_empty_folder(root):
    for path in (root / 'val2017').iterdir():
        path.unlink()
    return f'{root}/val2017 is empty'


def coco_cut_picture(root):
    path = root / 'val2017' / '000000000002.jpg'
    path.write_bytes(path.read_bytes()[:-40])
    return f'{path} can not be read as a picture: '


@pytest.mark.parametrize('damage', [
    coco_no_folder, coco_misplaced_folder, coco_misplaced_file, coco_empty_file, coco_cut_file,
    coco_lost_picture, coco_extra_picture, coco_empty_folder, coco_cut_picture])
def test_each_damage_of_coco_is_the_one_problem(coco, damage):
    expected = damage(coco)
    (problem,) = check_coco(coco, COCO_PARTS)
    assert problem.startswith(expected)


def test_a_name_that_is_no_text_is_found(coco):
    name = coco / COCO_PARTS[0][1]
    name.write_bytes(name.read_bytes().replace(b'000000000001.jpg', b'\xff.jpg'))
    assert '000000000001.jpg' in '\n'.join(check_coco(coco, COCO_PARTS))
    picture = coco / 'train2017' / '000000000001.jpg'
    picture.rename(picture.with_name(os.fsdecode(b'\xff.jpg')))
    assert check_coco(coco, COCO_PARTS) == []


@pytest.mark.parametrize('block_size', [1, 7, 1 << 20])
def test_names_across_block_ends_are_found(tmp_path, block_size):
    names = {f'{index:05d}.jpg' for index in range(20)}
    path = tmp_path / 'a.json'
    path.write_text(json.dumps({'images': [{'file_name': name} for name in sorted(names)]}) + '\n')
    assert annotated_names(path, block_size) == (names, True)


def test_a_whole_ade20k_copy_has_no_problems_and_stays_as_it_is(ade):
    before = snapshot(ade)
    assert check_ade20k(ade, ADE_PARTS) == []
    assert snapshot(ade) == before
    assert f'{ade}/images/training has 4 .jpg files, expected 20210' in check_ade20k(ade)


def ade_parent(root):
    inner = root / 'ADEChallengeData2016'
    inner.mkdir()
    for name in ('images', 'annotations'):
        shutil.move(root / name, inner)
    return [f'{root} holds the folder ADEChallengeData2016: give {inner}']


def ade_no_labels(root):
    shutil.rmtree(root / 'annotations')
    return [f'folder {root}/annotations/training is missing',
            f'folder {root}/annotations/validation is missing']


def ade_unpaired(root):
    folder = root / 'annotations' / 'training'
    (folder / 'training_1.png').rename(folder / 'other.png')
    return [f'{folder} lacks 1 of 4 label maps of {root}/images/training: training_1',
            f'{folder} holds 1 files that are not among the label maps of '
            f'{root}/images/training: other']


def ade_high_label(root):
    path = root / 'annotations' / 'validation' / 'validation_0.png'
    Image.fromarray(np.full((6, 8), 151, dtype=np.uint8)).save(path)
    return [f'{path} holds the label 151; the highest is 150']


def ade_other_size(root):
    path = root / 'annotations' / 'validation' / 'validation_0.png'
    Image.new('L', (6, 8)).save(path)
    return [f'{path} is 6x8, its picture 8x6']


def ade_colour_labels(root):
    path = root / 'annotations' / 'validation' / 'validation_0.png'
    Image.new('RGB', (8, 6)).save(path)
    return [f'{path} has mode RGB; one channel of 8 bits is required']


@pytest.mark.parametrize('damage', [ade_parent, ade_no_labels, ade_unpaired, ade_high_label,
                                    ade_other_size, ade_colour_labels])
def test_each_damage_of_ade20k_is_said(ade, damage):
    expected = damage(ade)
    assert check_ade20k(ade, ADE_PARTS) == expected


def test_a_path_that_is_no_folder(tmp_path):
    assert check_coco(tmp_path / 'x') == check_ade20k(tmp_path / 'x') == [
        f'{tmp_path}/x is not a folder']
