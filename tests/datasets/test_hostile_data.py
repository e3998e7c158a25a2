"""Data sets of strangers: every fault is named, counted or refused, and none takes the memory."""
from __future__ import annotations

import io
import json
import os
import signal
import struct
import tracemalloc
import zlib

import numpy as np
import pytest
from mmengine.registry import DATASETS, TRANSFORMS
from PIL import Image
from tinydata import make_coco, read_annotations

import mmposenc  # noqa: F401
from mmposenc.openmmlab.datasets.image_files import breaks_off, broken, broken_file


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
    (put('annotations', 0, bbox=[0, 0, 5]), 'must be four finite numbers'),
    (put('annotations', 0, bbox=None), 'bbox=None must be four finite numbers'),
    (put('annotations', 0, bbox=['1', '2', '3', '4']), 'must be four finite numbers'),
    (put('annotations', 0, area=float('nan')), 'area=nan must be a finite number'),
    (put('annotations', 0, bbox=[0, 0, 10 ** 400, 5]), 'annotation 1: bbox='),
    (put('annotations', 0, area='5'), "area='5' must be a finite number"),
    (put('annotations', 0, iscrowd='0'), "annotation 1: iscrowd='0' must be 0 or 1"),
    (put('annotations', 0, image_id=[1]), r'annotation 1: image_id=\[1\] must be a whole number'),
    (put('annotations', 0, category_id={}), 'category_id={} must be a whole number'),
    (put('annotations', 0, id=10 ** 30), 'id=1000.* must be a whole number of at most 64 bits'),
    (put('images', 0, id=[1]), r'id=\[1\] must be a whole number'),
    (put('images', 0, width=True), 'image 1: width=True'),
    (put('images', 0, file_name='a\0b'), 'embedded null'),
    (put('images', 0, file_name='.'), 'it is a folder, not a file'),
    (put('images', 0, file_name='\udc80.jpg'), 'No such file'),
    (put('categories', 0, name=7), 'category 1: name=7 must be a word'),
    (put('categories', 0, name=''), "category 1: name='' must be a word"),
    (put('categories', 0, name='square '), "'square'] are not among the categories"),
    (lambda data: data['annotations'].append(None), r'annotations\[8\] lacks id'),
    (lambda data: data.update(annotations=None), "'annotations' is a NoneType"),
    (put('annotations', 0, image_id='1'), "annotation 1: image_id='1' must be a whole number"),
    (put('annotations', 0, category_id='1'), "category_id='1' must be a whole number"),
    (put('annotations', 1, id=1), "two entries of 'annotations' have the id 1"),
    (put('images', 1, id=1), "two entries of 'images' have the id 1"),
    (put('images', 0, id='one'), "image 'one': id='one' must be a whole number"),
    (put('images', 0, width=float('nan')), 'image 1: width=nan must be a whole number'),
    (put('images', 0, height=0), 'image 1: height=0'),
    (put('images', 0, file_name=''), "image 1: file_name=''"),
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


#: Masks that are none for an image of 64 x 44 pixels, with what the error says.
RLE = {'size': [44, 64], 'counts': [100, 50, 44 * 64 - 150]}
NO_MASKS = [(mask, 'segmentation=.* must be a list of polygons') for mask in (
    None, [], 'abc', 5, [None], [['1', '2', '3', '4', '5', '6']], [[[1, 2], [3, 4], [5, 6]]],
    [5, 5, 20, 5, 20, 20], [[1, 2, float('nan'), 4, 5, 6]], [[1, 2, float('inf'), 4, 5, 6]],
    [[1e9, 0, 20, 0, 20, 20]])] + [({**RLE, **changes}, message) for changes, message in (
        (dict(size=[30, 30]), r'size=\[30, 30\] must be the image\'s, \[44, 64\]'),
        (dict(size=[64, 44]), 'must be the image'), (dict(size='44'), 'must be the image'),
        (dict(size=None), 'must be the image'), (dict(size=[10 ** 6] * 2), 'must be the image'),
        *((dict(counts=counts), r'segmentation: counts=.* that cover 44x64 pixels') for counts in (
            [100, 50], [100, 50, 10 ** 6], [100, -50, 44 * 64 - 50], [10 ** 12], [10 ** 30], [],
            [2 ** 62] * 3 + [2 ** 62 + 44 * 64], [1.5, 44 * 64 - 1.5], ['1'],
            None, 5, '', 'zzzz!!~~', 'é猫', 'o' * 50)))]


@pytest.mark.parametrize('number', range(len(NO_MASKS)))
def test_masks_that_are_none_are_refused_where_masks_are_loaded(root, number) -> None:
    masks = [dict(type='mmposenc.LoadImageFromFile'),
             dict(type='mmdet.LoadAnnotations', with_bbox=True, with_mask=True)]
    square = [[5, 5, 20, 5, 20, 20, 5, 20]]
    rewrite(root, lambda data: [each.update(segmentation=square) for each in data['annotations']]
            and None)
    rewrite(root, put('annotations', 1, segmentation=RLE))
    loaded = build(root, pipeline=masks)[0]['gt_masks'].masks
    assert [int(mask.sum()) for mask in loaded] == [225, 50]
    mask, message = NO_MASKS[number]
    rewrite(root, put('annotations', 0, segmentation=mask))
    with pytest.raises(ValueError, match=f"annotation 1 of image 'shape_0.jpg' in .*: .*{message}"):
        build(root, pipeline=masks)
    assert len(build(root)) == 4  # boxes alone do not need them


def test_objects_without_a_mask_are_counted(root, monkeypatch) -> None:
    """mmdet ignores what has no polygon of three corners."""
    rewrite(root, lambda data: [each.update(segmentation=[[1, 2, 3, 4], [1, 2, 3, 4, 5, 6, 7]])
                                for each in data['annotations']] and None)
    rewrite(root, put('annotations', 3, ignore=1))
    said = []
    monkeypatch.setattr('mmposenc.openmmlab.datasets.coco._warn', said.append)
    build(root, pipeline=[dict(type='mmdet.LoadAnnotations', with_bbox=True, with_mask=True)])
    assert said == [f'{root}/annotations.json: dropped annotations: 7 with a polygon of less than '
                    'three corners, 1 marked to be ignored']


def test_compressed_run_lengths_must_cover_the_image() -> None:
    """pycocotools reads one that is cut short, and leaves the rest as it was in memory."""
    from pycocotools import mask as tools

    from mmposenc.openmmlab.datasets.coco import has_area
    rng = np.random.default_rng(0)
    for number in range(24):
        size = [int(side) for side in rng.integers(1, 90, 2)]
        pixels = (rng.random(size) < rng.random()).astype(np.uint8)
        if number % 3 == 0:
            pixels[:] = number % 2
        counts = tools.encode(np.asfortranarray(pixels))['counts'].decode()
        assert has_area({'size': size, 'counts': counts}, tuple(size))
        for kept in range(len(counts)):
            with pytest.raises(ValueError, match='that cover'):
                has_area({'size': size, 'counts': counts[:kept]}, tuple(size))


@pytest.mark.parametrize('encoding', ['utf-8-sig', 'utf-16', 'utf-32'])
def test_another_encoding_is_read(root, encoding) -> None:
    text = (root / 'annotations.json').read_text()
    (root / 'annotations.json').write_text(text, encoding=encoding)
    assert len(build(root)) == 4


def test_a_pipe_in_the_place_of_a_file_is_named_and_never_opened(root, masks) -> None:
    signal.alarm(60)  # a pipe that is opened waits for ever
    for path in (root / 'images' / 'shape_1.jpg', masks / 'labels' / '1.png'):
        path.unlink()
        os.mkfifo(path)
    pipe = 'it is a pipe, not a file'
    with pytest.raises(ValueError, match=rf'shape_1\.jpg: {pipe}'):
        build(root)
    with pytest.raises(ValueError, match=rf'broken image .*shape_1\.jpg: {pipe}'):
        build(root, check_images=False)[1]
    with pytest.raises(ValueError, match=rf'labels/1\.png: {pipe}'):
        seg(masks)
    with pytest.raises(ValueError, match=rf'labels/1\.png: {pipe}'):
        seg(masks, check_images=False, pipeline=[
            dict(type='mmposenc.LoadImageFromFile'), dict(type='mmposenc.LoadSegAnnotations')])[1]
    (root / 'annotations.json').unlink()
    os.mkfifo(root / 'annotations.json')
    with pytest.raises(ValueError, match=rf'annotations\.json .*{pipe}'):
        build(root)
    signal.alarm(0)


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
    from mmposenc.openmmlab.datasets.coco import CheckedCOCO
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
    with pytest.raises(ValueError, match=r'shape_0\.jpg: the picture is 44x64 \(its EXIF '
                                         r'orientation is applied\), the annotations say 64x44'):
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


def png(path, pixels, mode=None, **options) -> None:
    Image.fromarray(pixels).convert(mode).save(path, 'PNG', **options)


LABELS = np.tile(np.arange(80, dtype=np.uint8) % 2, (60, 1))
#: What may lie in the place of a label map, and what the error says; None where it is right.
MAPS = [
    (lambda path: png(path, LABELS.astype(np.uint16)), 'one channel of 8 bits is required'),
    (lambda path: png(path, LABELS, 'RGB'), 'its mode is RGB; one channel'),
    (lambda path: png(path, LABELS, 'RGBA'), 'its mode is RGBA; one channel'),
    (lambda path: png(path, LABELS, 'LA'), 'its mode is LA; one channel'),
    (lambda path: png(path, LABELS[:44]), 'its size is 80x44, but'),
    (lambda path: png(path, LABELS.T.copy()), 'its size is 60x80, but'),
    (lambda path: png(path, LABELS + 2), 'holds labels 2, 3 in 4800 pixels'),
    (lambda path: png(path, LABELS * 200), 'holds the label 200 in'),
    (lambda path: path.write_bytes(b''), 'the file is empty'),
    (lambda path: path.write_bytes(b'\x89PNG\r\n\x1a\n'), 'labels/1.png'),
    (lambda path: path.write_text('no picture'), 'cannot identify image'),
    (lambda path: path.write_bytes(path.read_bytes()[:-60]), 'labels/1.png'),
    (lambda path: path.unlink(), 'missing, for the image'),
    (lambda path: [path.unlink(), path.mkdir()], 'it is a folder, not a file'),
    (lambda path: [path.unlink(), path.symlink_to('nowhere')], 'missing, for the image'),
    (lambda path: png(path, LABELS * 255), None),  # to be ignored
    (lambda path: png(path, LABELS * 255, '1'), None),  # one bit a pixel: 0 and 1
    (lambda path: png(path, LABELS, 'L', optimize=True), None),
    (lambda path: Image.fromarray(LABELS, 'P').save(path, 'PNG', bits=1), None),
    (lambda path: Image.fromarray(LABELS, 'P').save(path, 'PNG', transparency=0), None)]


@pytest.mark.parametrize('number', range(len(MAPS)))
def test_label_maps_are_right_or_named(masks, number) -> None:
    put_map, message = MAPS[number]
    path = masks / 'labels' / '1.png'
    put_map(path)
    steps = [dict(type='mmposenc.LoadImageFromFile'), dict(type='mmposenc.LoadSegAnnotations')]
    if message is None:
        labels = seg(masks, pipeline=steps)[1]['gt_seg_map']
        assert np.array_equal(labels % 254, LABELS)
        return
    with pytest.raises(ValueError, match=f'1 of 3 label maps (.|\n)*labels/1.png.*{message}|'
                                         f'1 of 3 label maps .*\n  .*{message}'):
        seg(masks)


def test_files_cut_short_are_found_among_many(masks) -> None:
    """Also those that are not in the sample whose labels are read."""
    paths = [masks / 'images' / '0.jpg', masks / 'labels' / '0.png']
    for path in paths:
        for i in range(1, 40):
            path.with_stem(str(i)).write_bytes(path.read_bytes())
    for path in (each.with_stem('33') for each in paths):
        data = path.read_bytes()
        path.write_bytes(data[:len(data) // 2])
        with pytest.raises(ValueError, match=rf'1 of 40 .*\n  {path}: '):
            seg(masks)
        path.write_bytes(data)
    assert len(seg(masks)) == 40
