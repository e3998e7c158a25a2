"""With a wheel made here: no network."""
import io

import numpy as np
from PIL import Image

from mmposenc.engine.prepare.nuclei import SPLITS, write_nuclei


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


def test_tiles_hold_the_pixels_and_labels_of_their_place(tmp_path, archive):
    image, mask = arrays()
    wheel = archive({'stardist/data/images/img2d.tif': tiff(image),
                     'stardist/data/images/mask2d.tif': tiff(mask),
                     'stardist-0.9.2.dist-info/licenses/LICENSE.txt': b'BSD'})
    out, seen = tmp_path, {}
    counts = write_nuclei(wheel, out, lambda line: None,
                          {'training': (0, 32, 8), 'validation': (32, None, 16)}, tile=16)
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


def test_the_real_source_shares_no_row():
    assert SPLITS == {'training': (0, 384, 64), 'validation': (384, None, 128)}
