"""Label maps that do not fit their images or classes: what is said, and when."""
import numpy as np
import pytest
from helpers.default_scope import scope_fixture
from PIL import Image

from mmposenc.openmmlab.datasets.label_maps import check_pairs, unknown_labels_text

scope = scope_fixture('mmseg')
CLASSES = ('sky', 'road', 'tree')
FOUR = dict(classes=(*CLASSES, 'car'))
LOAD = [dict(type='mmposenc.LoadImageFromFile'), dict(type='mmposenc.LoadSegAnnotations')]
RESIZED = [LOAD[0], dict(type='Resize', scale=(6, 4), keep_ratio=False), LOAD[1]]
TURNED = Image.Exif()
TURNED[0x0112] = 6


@pytest.fixture
def root(tmp_path):
    """Four images of 12x8 pixels with labels 0 to 3."""
    for kind in ('images', 'labels'):
        (tmp_path / kind).mkdir()
    for i in range(4):
        Image.new('RGB', (12, 8), (9 * i, 0, 0)).save(tmp_path / 'images' / f'{i}.jpg')
        save(tmp_path, i, np.arange(96).reshape(8, 12) % 4)
    return tmp_path


def save(root, index, labels, mode=np.uint8):
    Image.fromarray(np.asarray(labels, dtype=mode)).save(root / 'labels' / f'{index}.png')


def build(root, pipeline=LOAD, **options):
    from mmseg.registry import DATASETS
    return DATASETS.build({**dict(
        type='mmposenc.SegDataset', data_root=str(root), pipeline=pipeline,
        data_prefix=dict(img_path='images', seg_map_path='labels'),
        metainfo=dict(classes=CLASSES), reduce_zero_label=True), **options})


@pytest.mark.parametrize('pipeline', [LOAD, RESIZED])
def test_labels_are_read_as_mmseg_reads_them(root, pipeline):
    dataset = build(root, pipeline)
    labels = dataset[2]['gt_seg_map']
    expected = np.arange(96).reshape(8, 12) % 4
    np.testing.assert_array_equal(labels, np.where(expected == 0, 255, expected - 1))
    assert dataset.metainfo['reduce_zero_label'] and len(dataset) == 4
    # mmseg's tools read the names of classes there.
    assert dataset.METAINFO['classes'] == CLASSES and not type(dataset).METAINFO.get('classes')


def test_zero_is_a_class_unless_it_is_removed(root):
    with pytest.raises(ValueError, match=r'0\.png: holds the label 3 in 24 .*from 0 to 2, or 255'):
        build(root, reduce_zero_label=False)
    dataset = build(root, reduce_zero_label=False, metainfo=FOUR)
    assert dataset[0]['gt_seg_map'].max() == 3


def test_labels_outside_the_classes_are_named_while_loading(root):
    labels = np.full((8, 12), 1)
    labels[0, :3] = 4, 4, 200
    save(root, 0, labels)
    dataset = build(root, check_images=False)
    with pytest.raises(ValueError, match=r'0\.png holds labels 3, 199 .*0 to 2, .*reduce_zero'):
        dataset[0]


def test_a_turned_photograph_has_the_size_it_is_shown_with(root):
    Image.new('RGB', (8, 12)).save(root / 'images' / '1.jpg', exif=TURNED)
    assert build(root)[1]['img'].shape[:2] == (8, 12)


def test_no_image_says_where_it_looked(root):
    with pytest.raises(ValueError, match=r"there is no image \*\.png in \S*images \(img_suffix="):
        build(root, img_suffix='.png')


@pytest.mark.parametrize('labels, options, unseen', [
    ([0, 255], dict(reduce_zero_label=False), "'road', 'tree'"),  # masks of 0 and 255
    ([0, 1], dict(), "'road', 'tree'"),  # 0 is ignored, too
    ([0, 1, 2], dict(reduce_zero_label=False), ''), ([1, 2, 3], dict(), ''),
    ([1, 2], dict(type='mmposenc.ADE20KDataset', metainfo=dict(classes=('wall', 'sky'))), "'sky'"),
    ([0, 1, 2], dict(test_mode=True), '')])
def test_a_class_without_a_pixel_is_named_before_training(root, warnings, labels, options, unseen):
    for i in range(4):
        save(root, i, np.resize(labels, (8, 12)))
    build(root, **options)
    found = [message for message in warnings() if 'has pixels of' in message]
    assert len(found) == bool(unseen)
    assert all(f'pixels of {unseen} (pixels of the value 255' in message for message in found)


def test_ade20k_has_its_classes(root):
    def built(label, **options):
        for i in range(4):
            save(root, i, np.full((8, 12), label))
        return build(root, **{'type': 'mmposenc.ADE20KDataset', 'metainfo': None, **options})
    assert (built(150)[0]['gt_seg_map'] == 149).all()
    with pytest.raises(ValueError, match='holds the label 151 .* from 0 to 150'):
        built(151)
    # Some of the classes: what is in the file may still be any of the 150.
    subset = built(13, metainfo=dict(classes=('person', 'tree')))
    assert (subset[0]['gt_seg_map'] == 0).all()


def test_many_problems_are_counted_and_some_are_shown():
    pairs = [(f'{i}.jpg', f'{i}.png') for i in range(30)]
    with pytest.raises(ValueError, match='30 of 30 label maps') as error:
        check_pairs(pairs)
    assert str(error.value).count('missing') == 20
    assert unknown_labels_text(np.arange(12), 3).startswith(
        'holds labels 3, 4, 5, 6, 7, 8, 9, 10, ...')


def png(path, pixels, mode=None, **options) -> None:
    Image.fromarray(pixels).convert(mode).save(path, 'PNG', **options)


LABELS = np.tile(np.arange(12, dtype=np.uint8) % 2, (8, 1))
#: What may lie in the place of a label map, and what the error says; None where it is right.
MAPS = [
    (lambda path: png(path, LABELS.astype(np.uint16)), 'one channel of 8 bits is required'),
    (lambda path: png(path, LABELS, 'RGB'), 'its mode is RGB; one channel'),
    (lambda path: png(path, LABELS[:4]), 'its size is 12x4, but'),
    (lambda path: png(path, LABELS + 4), 'holds labels 4, 5 in 96 pixels'),
    (lambda path: png(path, LABELS * 200), 'holds the label 200 in'),
    (lambda path: path.write_bytes(b''), 'the file is empty'),
    (lambda path: path.write_text('no picture'), 'recognises no picture'),
    (lambda path: path.write_bytes(path.read_bytes()[:-60]), 'labels/1.png'),
    (lambda path: path.unlink(), 'missing, for the image'),
    (lambda path: [path.unlink(), path.mkdir()], 'it is no file'),
    (lambda path: png(path, LABELS * 255), None),  # to be ignored
    (lambda path: png(path, LABELS * 255, '1'), None),  # one bit a pixel: 0 and 1
    (lambda path: png(path, LABELS, exif=TURNED), None),  # loaded as it lies in the file
    (lambda path: Image.fromarray(LABELS, 'P').save(path, 'PNG', bits=1), None)]


@pytest.mark.parametrize('number', range(len(MAPS)))
def test_label_maps_are_right_or_named(root, number) -> None:
    """Before training, and where that is switched off when it is loaded."""
    put_map, message = MAPS[number]
    path = root / 'labels' / '1.png'
    put_map(path)
    if message is None:
        labels = build(root, reduce_zero_label=False, metainfo=FOUR)[1]['gt_seg_map']
        assert np.array_equal(labels % 254, LABELS)
        return
    with pytest.raises(ValueError, match=f'1 of 4 label maps (.|\n)*labels/1.png.*{message}|'
                                         f'1 of 4 label maps .*\n  .*{message}'):
        build(root)
    if 'bits' not in message:
        with pytest.raises((ValueError, OSError), match='labels/1.png'):
            build(root, check_images=False)[1]


def test_files_cut_short_are_found_among_many(root) -> None:
    """Also those that are not in the sample whose labels are read."""
    paths = [root / 'images' / '0.jpg', root / 'labels' / '0.png']
    for path in paths:
        for i in range(1, 40):
            path.with_stem(str(i)).write_bytes(path.read_bytes())
    for path in (each.with_stem('33') for each in paths):
        data = path.read_bytes()
        path.write_bytes(data[:len(data) // 2])
        with pytest.raises(ValueError, match=rf'1 of 40 .*\n  {path}: '):
            build(root)
        path.write_bytes(data)
    assert len(build(root)) == 40
