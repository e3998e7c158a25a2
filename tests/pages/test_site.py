"""The site: built with its notebooks, and with warnings, such as of broken links, as errors."""
import zlib
from pathlib import Path

import pytest
from helpers.scripts import ROOT, run_python

from mmposenc import attention, backbones, checkpoint, detr, encodings, functional
from mmposenc.class_index import CLASSES

pytestmark = pytest.mark.slow
pytest.importorskip('myst_nb')


@pytest.fixture(scope='module')
def site(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp('site')
    run_python('-m', 'sphinx', '-q', '-W', '--keep-going', '-j', '2', '-c', 'docs', '-d',
               folder / 'doctrees', '.', folder / 'html')
    return folder / 'html'


def test_every_public_name_is_in_the_api(site):
    listed = zlib.decompress((site / 'objects.inv').read_bytes().split(b'\n', 4)[4]).decode()
    found = {line.split()[0] for line in listed.splitlines() if 'docs/api/' in line}
    wanted = {f'mmposenc.{module}.{name}' for table in CLASSES.values()
              for name, module in table.items()}
    assert wanted <= found
    names = {name.rpartition('.')[2] for name in found}
    for room in (attention, checkpoint, encodings, functional, backbones, detr):
        public = {name for name in room.__all__ if callable(getattr(room, name))}
        assert public <= names, room


def test_notebooks_are_stored_without_outputs_and_shown_with_them(site):
    for notebook in (ROOT / 'docs' / 'notebooks').glob('*.ipynb'):
        assert '"outputs": []' in notebook.read_text()
        assert '"output_type"' not in notebook.read_text()
        html = (site / 'docs' / 'notebooks' / f'{notebook.stem}.html').read_text()
        assert html.count('<img') >= 2 and 'Traceback' not in html
