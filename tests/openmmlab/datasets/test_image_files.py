"""Images that are not whole."""
import io
import os

import numpy as np
import pytest
from mmengine.registry import DATASETS, TRANSFORMS
from PIL import Image, ImageOps

from mmposenc.engine.config.checked_classes import with_checked_classes
from mmposenc.openmmlab.datasets import image_files
from mmposenc.openmmlab.datasets.image_files import image_file_problem


def broken(data: bytes) -> str:
    try:
        image_files.size_if_whole(io.BytesIO(data))
    except ValueError as error:
        return str(error)
    return ''


def encoded(kind: str, **options) -> bytes:
    pixels = np.random.default_rng(0).integers(0, 256, (40, 60, 3), dtype=np.uint8)
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, kind, **options)
    return buffer.getvalue()


@pytest.mark.parametrize('kind, options', [
    ('JPEG', {}), ('JPEG', dict(progressive=True)), ('PNG', {}), ('BMP', {}), ('TIFF', {})])
def test_whole_and_cut_short(kind, options, tmp_path) -> None:
    image = encoded(kind, **options)
    (tmp_path / 'a').write_bytes(image)
    assert broken(image) == image_file_problem(str(tmp_path / 'a')) == ''
    assert broken(image + b'appended by a camera') == ''
    for kept in (0.02, 0.5, 0.98):
        cut = image[:int(len(image) * kept)]
        (tmp_path / 'a').write_bytes(cut)
        assert broken(cut) and broken(cut) == image_file_problem(str(tmp_path / 'a'))


def test_thumbnail_does_not_hide_a_cut() -> None:
    """A JPEG inside the JPEG's header has an end marker of its own."""
    exif = Image.Exif()
    exif[0x010e] = 'x'
    whole = encoded('JPEG', exif=exif.tobytes() + encoded('JPEG', quality=10)[:400] + b'\xff\xd9')
    assert b'\xff\xd9' in whole[:-16]
    assert broken(whole) == ''
    assert broken(whole[:len(whole) // 2]) != ''


def test_an_image_that_opencv_does_not_decode_is_named(tmp_path) -> None:
    path = str(tmp_path / 'floats.jpg')
    Image.fromarray(np.ones((9, 9), np.float32)).save(path, 'TIFF')
    with pytest.raises(ValueError, match="floats.jpg: imdecode_backend='cv2' cannot decode it"):
        TRANSFORMS.build(dict(type='mmposenc.LoadImageFromFile'))(dict(img_path=path))


def test_an_image_of_too_many_pixels_is_refused(tmp_path, monkeypatch) -> None:
    """Pillow refuses twice its limit; before the image is decoded, which would fill the memory."""
    path = tmp_path / 'large.png'
    path.write_bytes(encoded('PNG'))
    monkeypatch.setattr(Image, 'MAX_IMAGE_PIXELS', 40 * 60 // 2 - 1)
    assert 'pixels' in image_file_problem(str(path))
    os.mkfifo(tmp_path / 'pipe.png')  # Who opens one waits.
    assert image_file_problem(str(tmp_path / 'pipe.png')) == 'it is no file'
    with pytest.raises(ValueError, match=r'broken image .*large\.png: .*pixels'):
        TRANSFORMS.build(dict(type='mmposenc.LoadImageFromFile'))(dict(img_path=str(path)))


@pytest.mark.parametrize('flag', ['color', 'grayscale'])
def test_twelve_bits_in_sixteen_are_read_as_twelve(tmp_path, warnings, flag) -> None:
    pixels = np.random.default_rng(0).integers(0, 4096, (40, 60), dtype=np.uint16)
    path, load = str(tmp_path / 'a.png'), TRANSFORMS.build(dict(
        type='mmposenc.LoadImageFromFile', color_type=flag))
    for largest, shift in ((4095, 4), (4096, 8)):
        pixels[0, 0] = largest
        Image.fromarray(pixels).save(path)
        found = load(dict(img_path=path))['img']
        np.testing.assert_array_equal(found.reshape(40, 60, -1)[..., 0], pixels >> shift)
    assert ''.join(warnings()).count('has 16 bits, and no value above 4095') == 1
    Image.fromarray((pixels >> 9).astype(np.uint8)).save(path)  # 8 bits, and dark
    assert load(dict(img_path=path))['img'].max() == 8


def test_loops_of_links_end_and_pipes_are_not_opened(tmp_path) -> None:
    for name in ('train/cat/a.png', 'train/dog/b.png', 'disk/c.png'):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(encoded('PNG'))
    os.mkfifo(tmp_path / 'train/cat/pipe.png')
    for name, target in (('cat/more', 'disk'), ('cat/loop', 'train/cat'), ('dog/up', 'train')):
        (tmp_path / 'train' / name).symlink_to(tmp_path / target)
    (tmp_path / 'train/dog/gone.png').symlink_to(tmp_path / 'nothing')
    names = ['cat/a.png', 'cat/more/c.png', 'dog/b.png', 'dog/gone.png']
    found = image_files.files_below(tmp_path / 'train')
    assert [os.path.relpath(path, tmp_path / 'train') for path in found] == names
    with pytest.raises(ValueError, match='pipe.png: it is no file'):
        TRANSFORMS.build(dict(type='mmposenc.LoadImageFromFile'))(
            dict(img_path=str(tmp_path / 'train/cat/pipe.png')))
    data = dict(type='mmposenc.CustomDataset', data_root=str(tmp_path), data_prefix='train')
    with pytest.raises(ValueError, match=r'1 of 4 images of .*\n  .*gone.png: No such file'):
        DATASETS.build(data)
    (tmp_path / 'train/dog/gone.png').unlink()
    infos = [DATASETS.build(data).get_data_info(number) for number in range(3)]
    assert [(os.path.relpath(info['img_path'], tmp_path / 'train'), info['gt_label'])
            for info in infos] == list(zip(names, (0, 0, 1), strict=False))


@pytest.mark.parametrize('text, said', [
    ('\ufeffa b.png 0\r\nc.png 1\r\n', ''), ('a b.png 0\n\nc.png 1\n', ":2: ''"),
    ('a b.png 0\nc.png 1\n\n', ":3: ''"), ('a b.png,0\n', ":1: 'a b.png,0'")])
def test_lists_of_a_classifier(tmp_path, text, said) -> None:
    for name in ('a b.png', 'c.png'):
        (tmp_path / name).write_bytes(encoded('PNG'))
    (tmp_path / 'list.txt').write_bytes(text.encode())
    data = dict(type='mmpretrain.CustomDataset', ann_file=str(tmp_path / 'list.txt'),
                data_prefix=str(tmp_path), metainfo=dict(classes=['x', 'y']))
    if said:
        with pytest.raises(ValueError, match=f'list.txt{said} must be the path of a picture, a'):
            DATASETS.build(with_checked_classes(data))
    else:
        assert [info['gt_label'] for info in map(
            DATASETS.build(with_checked_classes(data)).get_data_info, range(2))] == [0, 1]


@pytest.mark.parametrize('kind', ['JPEG', 'PNG', 'TIFF', 'WEBP'])
def test_each_orientation_is_applied_and_known(kind, tmp_path) -> None:
    path, exif = tmp_path / 'a', Image.Exif()
    load = TRANSFORMS.build(dict(type='mmposenc.LoadImageFromFile'))
    for way in range(1, 9):
        exif[0x0112] = way
        path.write_bytes(encoded(kind, exif=exif.tobytes(), **(
            {'lossless': True} if kind == 'WEBP' else {})))
        shown = np.asarray(ImageOps.exif_transpose(Image.open(path)))
        found = load(dict(img_path=str(path)))
        assert found['img_shape'] == found['ori_shape'] == found['img'].shape[:2]
        np.testing.assert_allclose(found['img'][..., ::-1], shown, atol=2)  # of JPEG's decoders
        assert image_file_problem(str(path), shown.shape[1::-1]) == ''
