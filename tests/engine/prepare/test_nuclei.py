"""With a wheel made here: no network."""
import io
import json

import numpy as np
import pytest
from PIL import Image

from mmposenc.engine.prepare.nuclei import NUCLEI, NucleiFromWheel
from mmposenc.engine.prepare.wheels import prepare_from_wheel

NAME = 'fakestar-1.0-py3-none-any.whl'
LICENCE = 'fakestar-1.0.dist-info/licenses/LICENSE.txt'


def arrays():
    rng = np.random.default_rng(0)
    mask = np.zeros((48, 40), dtype=np.uint16)
    for number, (y, x) in enumerate([(2, 2), (14, 20), (36, 4), (38, 25), (30, 30)], start=1):
        mask[y:y + 6, x:x + 6] = 50 * number
    return rng.integers(0, 230, (48, 40)).astype(np.uint16), mask


def tiff(array):
    buffer = io.BytesIO()
    Image.fromarray(array).save(buffer, 'TIFF')
    return buffer.getvalue()


@pytest.fixture
def source(wheel):
    image, mask = map(tiff, arrays())
    made = wheel(NAME, {'fakestar/img.tif': image, 'fakestar/mask.tif': mask, LICENCE: b'BSD'})
    return NucleiFromWheel('fakestar==1.0', *made, 'fakestar/img.tif', 'fakestar/mask.tif', LICENCE,
                           (('training', 0, 32, 8), ('validation', 32, None, 16)), tile=16,
                           disk_bytes=1000)


def test_tiles_hold_the_pixels_and_labels_of_their_place(tmp_path, source):
    image, mask = arrays()
    out, seen = tmp_path / 'nuclei', {}
    counts = prepare_from_wheel(source, out, tmp_path / 'cache')
    for split, rows in (('training', (0, 32)), ('validation', (32, 48))):
        seen[split] = np.zeros((48, 40), dtype=bool)
        files = sorted((out / 'images' / split).iterdir())
        assert len(files) == counts[split]['tiles']
        for path in files:
            x, y = int(path.stem[8:11]), int(path.stem[13:])
            window = np.s_[y:y + 16, x:x + 16]
            np.testing.assert_array_equal(np.asarray(Image.open(path)), image[window])
            labels = Image.open(out / 'annotations' / split / path.name)
            assert labels.mode == 'L'
            np.testing.assert_array_equal(np.asarray(labels), mask[window] > 0)
            seen[split][window] = True
        assert (seen[split] == (np.arange(48)[:, None] >= rows[0]) * (np.arange(48)[:, None]
                                                                     < rows[1])).all()
    assert counts == {'training': {'tiles': 3 * 4, 'nuclei': 3},
                      'validation': {'tiles': 3, 'nuclei': 3}}  # one nucleus lies on the border
    assert (out / 'LICENSE').read_bytes() == b'BSD'
    assert json.loads((out / 'prepared.json').read_text())['counts'] == counts


def test_the_real_source_shares_no_row():
    (_, first, end, _), (_, held, last, stride) = NUCLEI.splits
    assert (first, end, held, last) == (0, 384, 384, None) and stride == NUCLEI.tile
