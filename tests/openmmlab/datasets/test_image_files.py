"""Images that are not whole."""
import io
import os

import numpy as np
import pytest
from mmengine.registry import TRANSFORMS
from PIL import Image, ImageOps

import mmposenc  # noqa: F401
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


@pytest.mark.parametrize('kind', ['JPEG', 'PNG', 'TIFF'])
def test_each_orientation_is_applied_and_known(kind, tmp_path) -> None:
    path, exif = tmp_path / 'a', Image.Exif()
    load = TRANSFORMS.build(dict(type='mmposenc.LoadImageFromFile'))
    for way in range(1, 9):
        exif[0x0112] = way
        path.write_bytes(encoded(kind, exif=exif.tobytes()))
        shown = np.asarray(ImageOps.exif_transpose(Image.open(path)))
        found = load(dict(img_path=str(path)))
        assert found['img_shape'] == found['ori_shape'] == found['img'].shape[:2]
        np.testing.assert_allclose(found['img'][..., ::-1], shown, atol=2)  # of JPEG's decoders
        assert image_file_problem(str(path), shown.shape[1::-1]) == ''
