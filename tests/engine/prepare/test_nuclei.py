"""With a wheel made here: no network."""
import numpy as np
from PIL import Image

from mmposenc.engine.prepare.nuclei import SPLITS, write_nuclei


def test_tiles_hold_the_pixels_and_labels_of_their_place(tmp_path, archive, encoded):
    image = np.random.default_rng(0).integers(0, 230, (48, 40)).astype(np.uint16)
    mask = np.zeros((48, 40), dtype=np.uint16)
    for number, (y, x) in enumerate([(2, 2), (14, 20), (36, 4), (38, 25), (30, 30)], start=1):
        mask[y:y + 6, x:x + 6] = 50 * number
    wheel = archive({'stardist/data/images/img2d.tif': encoded(image, 'TIFF'),
                     'stardist/data/images/mask2d.tif': encoded(mask, 'TIFF'),
                     'stardist-0.9.2.dist-info/licenses/LICENSE.txt': b'BSD'})
    counts = write_nuclei(wheel, tmp_path, {'training': (0, 32, 8), 'validation': (32, None, 16)},
                          tile=16)
    for split, (first, last) in (('training', (0, 32)), ('validation', (32, 48))):
        seen, expected = np.zeros((48, 40), dtype=bool), np.zeros((48, 40), dtype=bool)
        expected[first:last] = True
        files = sorted((tmp_path / 'images' / split).iterdir())
        assert len(files) == counts[split]['tiles']
        for path in files:
            x, y = int(path.stem[8:11]), int(path.stem[13:])
            window = np.s_[y:y + 16, x:x + 16]
            np.testing.assert_array_equal(np.asarray(Image.open(path)), image[window])
            labels = Image.open(tmp_path / 'annotations' / split / path.name)
            assert labels.mode == 'L'
            np.testing.assert_array_equal(np.asarray(labels), mask[window] > 0)
            seen[window] = True
        np.testing.assert_array_equal(seen, expected)
    assert counts == {'training': {'tiles': 3 * 4, 'nuclei': 3},
                      'validation': {'tiles': 3, 'nuclei': 3}}  # one nucleus lies on the border
    assert SPLITS == {'training': (0, 384, 64), 'validation': (384, None, 128)}
