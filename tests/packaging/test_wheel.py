"""What is built: a source archive, the wheel from it, the editable wheel."""
import pytest
from helpers.scripts import ROOT


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


@pytest.mark.slow
def test_what_an_index_asks_of_them(sdist_file, wheel_file):
    """As `twine check --strict` does."""
    check = pytest.importorskip('twine.commands.check').check
    assert not check([str(sdist_file), str(wheel_file)], strict=True)
