"""What is built: a source archive, the wheel from it, the editable wheel."""
import re
import runpy
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def relative_files(folder):
    return {path.relative_to(folder) for path in folder.rglob('*')
            if path.is_file() and '__pycache__' not in path.parts}


@pytest.mark.slow
def test_wheel_ships_configs_and_tools_and_every_module(wheel):
    shipped = wheel / 'mmposenc' / '.mim'
    for name in ('configs', 'tools'):
        assert relative_files(shipped / name) == relative_files(ROOT / name)
    assert (shipped / 'model-index.yml').read_text() == (ROOT / 'model-index.yml').read_text()
    modules = {path for path in relative_files(ROOT / 'mmposenc')
               if path.suffix == '.py' and '.mim' not in path.parts}
    assert modules <= relative_files(wheel / 'mmposenc')
    templates = relative_files(ROOT / 'mmposenc' / 'lab/compare/page/templates')
    assert templates == relative_files(wheel / 'mmposenc' / 'lab/compare/page/templates') != set()
    # Nothing of tests/ either, whose golden files are 2.4 MB.
    assert {path.name.split('-')[0] for path in wheel.iterdir()} == {'mmposenc'}
    assert not [path for path in wheel.rglob('*.npz')]


def test_model_index_names_configs_that_are_there():
    """Read as mim reads it; every config beside a metafile is in it."""
    load = pytest.importorskip('modelindex.load_model_index').load
    listed = [ROOT / model.config for model in load(str(ROOT / 'model-index.yml')).models]
    metafiles = (ROOT / 'configs').rglob('metafile.yml')
    assert sorted(listed) == sorted(path for file in metafiles for path in file.parent.glob('*.py'))


@pytest.mark.slow
def test_metadata(wheel):
    metadata = next(wheel.glob('*.dist-info/METADATA')).read_text()
    required = [line for line in metadata.splitlines() if line.startswith('Requires-Dist')]
    hard = sorted(line.split(': ')[1] for line in required if 'extra ==' not in line)
    assert hard == ['filelock>=4.0', 'numpy', 'safetensors>=0.5', 'torch>=2.1']
    onedl, openmmlab = ([line for line in required if f'extra == "{extra}"' in line]
                        for extra in ('onedl', 'openmmlab'))
    assert sum('onedl-mm' in line for line in onedl) == 5
    assert openmmlab and not any('onedl' in line for line in openmmlab)


@pytest.mark.parametrize('origin, page', [
    ('https://github.com/me/mmposenc.git', 'https://github.com/me/mmposenc'),
    ('https://me:ghp_secret@github.com/me/mmposenc', 'https://github.com/me/mmposenc'),
    ('git@gitlab.com:group/sub/mmposenc.git\n', 'https://gitlab.com/group/sub/mmposenc'),
    ('ssh://git@example.org:2222/me/mmposenc/', 'https://example.org/me/mmposenc'),
    ('/srv/mmposenc.git', ''), ('../mmposenc', ''), ('', '')])
def test_the_address_is_that_of_the_origin_without_secrets(origin, page):
    assert runpy.run_path(str(ROOT / 'setup.py'))['address'](origin) == page


@pytest.mark.parametrize('url', ['https://example.org/me/mmposenc', ''])
def test_an_index_page_shows_the_readme_whole(url):
    readme = (ROOT / 'README.md').read_text()
    shown = runpy.run_path(str(ROOT / 'setup.py'))['description'](readme, url)
    targets = re.findall(r'\]\(([^)]+)\)', shown)
    assert all(re.match('https?://', target) for target in targets), targets
    paths = [target.partition('#')[0].removeprefix(f'{url}/blob/HEAD/').removeprefix(
        f'{url}/raw/HEAD/') for target in targets if url and target.startswith(url)]
    assert all((ROOT / path).is_file() for path in paths), paths
    assert bool(paths) == bool(url) == ('![' in shown) == (f'git clone {url} ' in shown)
    assert ('REPOSITORY' in shown) != bool(url)
    words = [re.sub(r'\W+', ' ', re.sub(r'\]\([^)]*\)', '', text)).split()
             for text in (readme, shown)]
    assert len(words[1]) > .95 * len(words[0])


@pytest.mark.slow
def test_what_an_index_asks_of_them(sdist_file, wheel_file):
    """As `twine check --strict` does."""
    check = pytest.importorskip('twine.commands.check').check
    assert not check([str(sdist_file), str(wheel_file)], strict=True)


@pytest.mark.slow
def test_editable_install_links(editable_file, tree):
    shipped = tree / 'mmposenc' / '.mim'
    for name in ('configs', 'tools', 'model-index.yml'):
        assert (shipped / name).is_symlink() and (shipped / name).resolve() == tree / name
    with zipfile.ZipFile(editable_file) as archive:
        assert not [name for name in archive.namelist() if name.startswith('mmposenc/')]
