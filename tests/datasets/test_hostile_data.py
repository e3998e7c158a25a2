"""Data sets of strangers: every fault is named, counted or refused, and none takes the memory."""
from __future__ import annotations

import gzip
import io
import json
import re
import struct
import tracemalloc
import zipfile
import zlib

import numpy as np
import pytest
from mmengine.registry import DATASETS, TRANSFORMS
from PIL import Image
from tinydata import make_coco, read_annotations

import mmposenc  # noqa: F401
from mmposenc.datasets.image_files import breaks_off, broken, broken_file
from mmposenc.preparation.common import read_member
from mmposenc.preparation.idx import read_idx


@pytest.fixture
def root(tmp_path):
    return make_coco(tmp_path / 'data')


def build(root, **kwargs):
    import mmdet.datasets.transforms  # noqa: F401  (registers the pipeline's steps)
    return DATASETS.build(dict(
        type='mmposenc.CocoDataset', data_root=str(root), ann_file='annotations.json',
        data_prefix=dict(img='images/'), metainfo=dict(classes=('square', 'disc')),
        pipeline=kwargs.pop('pipeline', [dict(type='mmposenc.LoadImageFromFile')]), **kwargs))


def rewrite(root, change) -> None:
    data = read_annotations(root)
    changed = change(data)
    (root / 'annotations.json').write_text(
        json.dumps(data if changed is None or isinstance(changed, dict) and changed is not data
                   and not changed.get('whole') else changed['whole']))


def put(section, index, **values):
    return lambda data: data[section][index].update(values)


def drop(section, index, key):
    return lambda data: data[section][index].pop(key) and None


#: What a file may hold, and what the error says.
REFUSED = [
    (put('annotations', 0, bbox=[float('nan'), 0, 5, 5]), r'annotation 1: bbox=\[nan'),
    (put('annotations', 1, bbox=[0, 0, float('inf'), 5]), r'annotation 2: bbox=.*inf'),
    (put('annotations', 0, bbox=[0, 0, 1e300, 5]), 'annotation 1: bbox='),
    (put('annotations', 0, bbox=[0, 0, 5]), 'must be four finite numbers'),
    (put('annotations', 0, bbox=None), 'bbox=None must be four finite numbers'),
    (put('annotations', 0, bbox=['1', '2', '3', '4']), 'must be four finite numbers'),
    (put('annotations', 0, area=float('nan')), 'area=nan must be a finite number'),
    (put('annotations', 0, image_id='1'), "annotation 1: image_id='1' must be a whole number"),
    (put('annotations', 0, category_id='1'), "category_id='1' must be a whole number"),
    (put('annotations', 1, id=1), "two entries of 'annotations' have the id 1"),
    (put('images', 1, id=1), "two entries of 'images' have the id 1"),
    (put('images', 0, id='one'), "image 'one': id='one' must be a whole number"),
    (put('images', 0, width=float('nan')), 'image 1: width=nan must be a whole number'),
    (put('images', 0, height=0), 'image 1: height=0'),
    (put('images', 0, height='44'), "image 1: height='44'"),
    (put('images', 0, file_name=''), "image 1: file_name=''"),
    (put('images', 0, file_name=7), 'image 1: file_name=7'),
    (put('categories', 1, name='square'), "2 categories have the name 'square'"),
    (put('categories', 1, id=1), "two entries of 'categories' have the id 1"),
    *[(drop(section, 0, key), rf'{section}\[0\] lacks {key}') for section, key in (
        ('images', 'id'), ('images', 'file_name'), ('images', 'height'), ('images', 'width'),
        ('annotations', 'id'), ('annotations', 'image_id'), ('annotations', 'category_id'),
        ('annotations', 'bbox'), ('categories', 'id'), ('categories', 'name'))],
    (lambda data: data.pop('images') and None, "'images' is missing"),
    (lambda data: data.pop('categories') and None, "'categories' is missing"),
    (lambda data: data.update(images=[]), "'images' is empty"),
    (lambda data: data.update(categories=[]), "'categories' is empty"),
    (lambda data: data.update(annotations=[]), 'has no annotation to train on'),
    (lambda data: data.pop('annotations') and None, 'has no annotation to train on'),
    (lambda data: data.update(images={}), "'images' is a dict; it must be a list"),
    (lambda data: data.update(annotations=[3]), r'annotations\[0\] lacks id'),
    (lambda data: dict(whole=[1, 2]), 'holds a list; a COCO file is a dict'),
    (put('images', 1, height=60), r'the picture is 64x64, the annotations say 64x60'),
    (lambda data: [ann.update(image_id=99) for ann in data['annotations']] and None,
     'no annotation to train on; dropped: 8 of an image that the file does not have')]


@pytest.mark.parametrize('number', range(len(REFUSED)))
def test_refused(root, number) -> None:
    change, message = REFUSED[number]
    rewrite(root, change)
    with pytest.raises(ValueError, match=message) as error:
        build(root)
    assert 'annotations.json' in str(error.value)


@pytest.mark.parametrize('text', ['', '{"images": [', '[' * 100_000, '\x00'])
def test_no_json(root, text) -> None:
    (root / 'annotations.json').write_text(text)
    with pytest.raises(ValueError, match=r'annotations\.json is no whole JSON file'):
        build(root)


def test_foreign_annotations_are_counted_and_a_missing_area_is_the_boxs(root, capsys) -> None:
    whole = build(root)
    rewrite(root, lambda data: data['annotations'].append(
        dict(data['annotations'][0], id=100, image_id=99)))
    rewrite(root, drop('annotations', 0, 'area'))
    dataset = build(root)
    assert [dataset.get_data_info(i) for i in range(4)] == [whole.get_data_info(i)
                                                            for i in range(4)]
    assert 'loading annotations' not in capsys.readouterr().out
    from mmposenc.datasets.coco_file import CheckedCOCO
    counted = CheckedCOCO(str(root / 'annotations.json')).dropped
    assert counted == {'of an image that the file does not have': 1}


def test_a_test_set_needs_no_annotations(root) -> None:
    rewrite(root, lambda data: data.pop('annotations') and None)
    assert len(build(root, test_mode=True)) == 4


def turned(path, orientation=6) -> None:
    """The picture stored lying, with a note to turn it: what a camera writes."""
    exif = Image.Exif()
    exif[0x0112] = orientation
    Image.open(path).save(path, exif=exif)


def test_a_turned_picture_is_turned_and_its_size_is_checked(root) -> None:
    turned(root / 'images' / 'shape_0.jpg')  # 64 x 44 as stored, 44 x 64 as shown
    with pytest.raises(ValueError, match=r'shape_0\.jpg: the picture is 44x64 \(its EXIF note of '
                                         r'a turn is applied\), the annotations say 64x44'):
        build(root)
    rewrite(root, put('images', 0, width=44, height=64))
    assert build(root)[0]['img'].shape[:2] == (64, 44)


def jpeg(pixels, **options) -> bytes:
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, 'JPEG', **options)
    return buffer.getvalue()


def decoded(data) -> np.ndarray:
    return np.asarray(Image.open(io.BytesIO(data)))


@pytest.fixture(scope='module')
def photo() -> np.ndarray:
    """Smooth and rough parts, as in a photograph."""
    rng = np.random.default_rng(0)
    rough = rng.normal(0, 20, (400, 500, 3))
    smooth = np.add.outer(np.linspace(0, 100, 400), np.linspace(0, 100, 500))[..., None]
    return (smooth + rough).clip(0, 255).astype(np.uint8)


@pytest.mark.parametrize('options', [{}, dict(quality=95), dict(quality=20, optimize=True),
                                     dict(subsampling=0)])
@pytest.mark.parametrize('kept', [0.2, 0.5, 0.75])
def test_a_cut_jpeg_that_ends_well(photo, options, kept, tmp_path) -> None:
    data = jpeg(photo, **options)
    cut = data[:int(len(data) * kept)] + b'\xff\xd9'
    assert broken(cut) == ''  # from its ends it looks whole
    assert breaks_off(cut, decoded(cut)) and not breaks_off(data, decoded(data))
    (tmp_path / 'cut.jpg').write_bytes(cut)
    load = TRANSFORMS.build(dict(type='mmposenc.LoadImageFromFile'))
    with pytest.raises(ValueError, match=r'cut\.jpg: it breaks off in the middle'):
        load(dict(img_path=str(tmp_path / 'cut.jpg')))


@pytest.mark.parametrize('options', [{}, dict(quality=95), dict(quality=20, optimize=True),
                                     dict(subsampling=0), dict(progressive=True)])
@pytest.mark.parametrize('value', [0, 128, 255])
def test_an_honest_picture_may_end_in_one_colour(photo, options, value) -> None:
    for rows in (200, 400):
        pixels = photo.copy()
        pixels[-rows:] = value
        data = jpeg(pixels, **options)
        assert not breaks_off(data, decoded(data))


def test_a_cut_png_that_ends_well(photo) -> None:
    buffer = io.BytesIO()
    Image.fromarray(photo).save(buffer, 'PNG')
    data = buffer.getvalue()
    assert broken(data) == ''
    assert broken(data[:len(data) // 2] + data[-12:]) != ''


def png_header(width: int, height: int) -> bytes:
    """A PNG whose head promises that many pixels."""
    def piece(name: bytes, content: bytes) -> bytes:
        return (struct.pack('>I', len(content)) + name + content
                + struct.pack('>I', zlib.crc32(name + content)))
    head = struct.pack('>IIBBBBB', width, height, 8, 2, 0, 0, 0)
    return (b'\x89PNG\r\n\x1a\n' + piece(b'IHDR', head)
            + piece(b'IDAT', zlib.compress(bytes(1000))) + piece(b'IEND', b''))


@pytest.mark.parametrize('size', [(30_000, 30_000), (100_000, 100_000)])
def test_a_gigapixel_image_is_refused_before_it_is_decoded(tmp_path, size) -> None:
    path = tmp_path / 'large.png'
    path.write_bytes(png_header(*size))
    tracemalloc.start()
    assert 'pixels' in broken_file(str(path))
    load = TRANSFORMS.build(dict(type='mmposenc.LoadImageFromFile'))
    with pytest.raises(ValueError, match=r'broken image .*large\.png: .*pixels'):
        load(dict(img_path=str(path)))
    assert tracemalloc.get_traced_memory()[1] < 20e6
    tracemalloc.stop()


def test_an_image_that_a_step_can_not_take_is_named(root) -> None:
    Image.fromarray(np.zeros((1, 10_000, 3), np.uint8)).save(root / 'images' / 'shape_1.jpg')
    rewrite(root, put('images', 1, width=10_000, height=1))
    dataset = build(root, pipeline=[
        dict(type='mmposenc.LoadImageFromFile'),
        dict(type='mmdet.Resize', scale=(1333, 800), keep_ratio=True)])
    with pytest.raises(ValueError, match=r'images/shape_1\.jpg: '):
        dataset[1]
    assert dataset[0]['img'].shape[0] > 1


@pytest.fixture
def masks(tmp_path):
    for folder in ('images', 'labels'):
        (tmp_path / folder).mkdir()
    rng = np.random.default_rng(0)
    for i in range(3):
        Image.fromarray(rng.integers(0, 256, (60, 80, 3), dtype=np.uint8)).save(
            tmp_path / 'images' / f'{i}.jpg')
        Image.fromarray(rng.integers(0, 2, (60, 80), dtype=np.uint8)).save(
            tmp_path / 'labels' / f'{i}.png')
    return tmp_path


def seg(root, **kwargs):
    import mmseg.datasets.transforms  # noqa: F401
    return DATASETS.build(dict(
        type='mmposenc.SegDataset', data_root=str(root), seg_map_suffix='.png',
        data_prefix=dict(img_path='images', seg_map_path='labels'),
        metainfo=dict(classes=('a', 'b')), **kwargs))


def test_a_label_map_that_breaks_off_is_named(masks) -> None:
    path = masks / 'labels' / '1.png'
    path.write_bytes(path.read_bytes()[:200])
    with pytest.raises(ValueError, match=r'1 of 3 label maps .*\n  .*labels/1\.png: '):
        seg(masks)
    dataset = seg(masks, check_images=False, pipeline=[
        dict(type='mmposenc.LoadImageFromFile'),
        dict(type='mmposenc.LoadSegAnnotations')])
    with pytest.raises(ValueError, match=r'labels/1\.png'):
        dataset[1]


def test_a_gzip_bomb_is_refused(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr('mmposenc.preparation.idx.MAX_BYTES', 2_000_000)
    header = bytes((0, 0, 8, 3)) + struct.pack('>III', 60_000, 1000, 1000)
    path = tmp_path / 'train-images-idx3-ubyte.gz'
    with gzip.open(path, 'wb', compresslevel=1) as file:
        file.write(header)
        file.write(bytes(30_000_000))
    tracemalloc.start()
    with pytest.raises(ValueError, match=rf'{re.escape(str(path))} unpacks to more than 2,000,000'):
        read_idx(path, 3)
    assert tracemalloc.get_traced_memory()[1] < 10e6  # not what the file would unpack to
    tracemalloc.stop()


def test_a_member_that_is_a_bomb_or_lies_outside(tmp_path) -> None:
    path = tmp_path / 'a.zip'
    with zipfile.ZipFile(path, 'w', zipfile.ZIP_DEFLATED) as archive:
        archive.writestr('bomb', bytes(5_000_000))
        archive.writestr('../outside', b'x')
        archive.writestr('text', b'hello' * 100)
    before = sorted(tmp_path.rglob('*'))
    with zipfile.ZipFile(path) as archive:
        with pytest.raises(ValueError, match=r'bomb would unpack .* to 5,000,000'):
            read_member(archive, 'bomb')
        assert read_member(archive, 'text') == b'hello' * 100
        assert read_member(archive, '../outside') == b'x'  # read; nothing is written anywhere
    assert sorted(tmp_path.rglob('*')) == before
