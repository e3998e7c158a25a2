"""Images that are not whole."""
from __future__ import annotations

import io

import numpy as np
import pytest
from PIL import Image

from mmposenc.openmmlab.datasets.image_files import broken, broken_file, broken_files


def encoded(kind: str, **options) -> bytes:
    pixels = np.random.default_rng(0).integers(0, 256, (40, 60, 3), dtype=np.uint8)
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, kind, **options)
    return buffer.getvalue()


@pytest.fixture(params=['JPEG', 'progressive', 'PNG', 'BMP', 'TIFF'])
def image(request) -> bytes:
    options = {'progressive': True} if request.param == 'progressive' else {}
    return encoded('JPEG' if options else request.param, **options)


def test_whole(image, tmp_path) -> None:
    (tmp_path / 'a').write_bytes(image)
    assert broken(image) == broken_file(str(tmp_path / 'a')) == ''
    assert broken(image + b'appended by a camera') == ''


@pytest.mark.parametrize('kept', [0.02, 0.5, 0.98])
def test_cut_short(image, kept, tmp_path) -> None:
    cut = image[:int(len(image) * kept)]
    (tmp_path / 'a').write_bytes(cut)
    assert broken(cut) and broken(cut) == broken_file(str(tmp_path / 'a'))


def test_thumbnail_does_not_hide_a_cut() -> None:
    """A JPEG inside the JPEG's header has an end marker of its own."""
    exif = Image.Exif()
    exif[0x010e] = 'x'
    whole = encoded('JPEG', exif=exif.tobytes() + encoded('JPEG', quality=10)[:400] + b'\xff\xd9')
    assert b'\xff\xd9' in whole[:-16]
    assert broken(whole) == ''
    assert broken(whole[:len(whole) // 2]) != ''


def test_files(tmp_path) -> None:
    good, cut, empty = (str(tmp_path / name) for name in ('good.jpg', 'cut.jpg', 'empty.jpg'))
    data = encoded('JPEG')
    for path, content in ((good, data), (cut, data[:900]), (empty, b'')):
        with open(path, 'wb') as file:
            file.write(content)
    missing = str(tmp_path / 'missing.jpg')
    found = broken_files([good, cut, missing, empty])
    assert list(found) == [cut, missing, empty]
    assert 'truncated' in found[cut]
    assert found[missing] == 'No such file or directory'
    assert found[empty] == 'the file is empty'
    assert broken(b'no image at all') != ''
