import gzip

import numpy as np
import pytest

from mmposenc.engine.prepare.mnist import read_idx, write_idx


@pytest.fixture
def array():
    return np.random.default_rng(0).integers(0, 256, (5, 3, 4), dtype=np.uint8)


def test_the_bytes_on_disk_are_the_published_format(tmp_path):
    write_idx(tmp_path / 'a', np.array([[1, 2, 3]], dtype=np.uint8))
    assert (tmp_path / 'a').read_bytes() == bytes(
        [0, 0, 8, 2, 0, 0, 0, 1, 0, 0, 0, 3, 1, 2, 3])


@pytest.mark.parametrize('zipped', [False, True])
def test_what_was_written_is_read(tmp_path, array, zipped):
    path = tmp_path / 'a'
    write_idx(path, array)
    if zipped:
        path.write_bytes(gzip.compress(path.read_bytes()))
    np.testing.assert_array_equal(read_idx(path, 3), array)


def test_mmpretrain_reads_the_same(tmp_path, array):
    mnist = pytest.importorskip('mmpretrain.datasets.mnist', reason='needs mmpretrain')
    write_idx(tmp_path / 'images', array)
    write_idx(tmp_path / 'labels', array[:, 0, 0])
    np.testing.assert_array_equal(mnist.read_image_file(str(tmp_path / 'images')).numpy(), array)
    np.testing.assert_array_equal(mnist.read_label_file(str(tmp_path / 'labels')).numpy(),
                                  array[:, 0, 0])


@pytest.mark.parametrize(('content', 'match'), [
    (b'', 'begins with nothing, required is 00000803'),
    (b'\x00\x00\x08\x01\x00\x00\x00\x01' + bytes(20), 'begins with 00000801'),
    (b'<html>' + bytes(20), 'begins with 3c68746d'),
    (bytes([0, 0, 8, 3, 0, 0, 0, 2, 0, 0, 0, 1, 0, 0, 0, 1, 7]), 'says it holds 2x1x1 bytes and '
                                                                 'holds 1'),
    (gzip.compress(bytes(1000))[:-9], 'no whole gzip file')],
    ids=['empty', 'labels', 'page', 'short', 'cut'])  # a gzip file holds the time: no stable id
def test_a_broken_file_is_named(tmp_path, content, match):
    path = tmp_path / 'train-images'
    path.write_bytes(content)
    with pytest.raises(ValueError, match=f'train-images.*{match}'):
        read_idx(path, 3)


def test_other_numbers_are_refused(tmp_path):
    with pytest.raises(ValueError, match='float64 must be uint8'):
        write_idx(tmp_path / 'a', np.zeros((1, 2)))
