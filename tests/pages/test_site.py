"""The site: built with warnings as errors and its notebooks run; what it links to is there."""
import os
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest
from helpers.page_blocks import ROOT

from mmposenc import attention, backbones, checkpoint, detr, encodings, functional
from mmposenc.class_index import CLASSES

pytestmark = pytest.mark.slow
pytest.importorskip('myst_nb')
pytest.importorskip('mmdet')


class Page(HTMLParser):
    """What a page refers to, and the places in it that others may name."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.links: list[str] = []
        self.ids: set[str] = set()
        self.feed(path.read_text())

    def handle_starttag(self, tag: str, attrs: list) -> None:
        found = dict(attrs)
        self.ids.update(found[key] for key in ('id', 'name') if found.get(key))
        if tag == 'a' and found.get('href'):
            self.links.append(found['href'])


@pytest.fixture(scope='module')
def site(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp('site')
    result = subprocess.run(
        [sys.executable, '-m', 'sphinx', '-q', '-W', '--keep-going', '-j', '2', '-c', 'docs',
         '-d', str(folder / 'doctrees'), '.', str(folder / 'html')],
        cwd=ROOT, text=True, capture_output=True, env={**os.environ, 'OMP_NUM_THREADS': '1'})
    assert result.returncode == 0, result.stderr
    return folder / 'html'


@pytest.fixture(scope='module')
def pages(site) -> dict[Path, Page]:
    return {path: Page(path) for path in site.rglob('*.html')}


def test_every_link_within_the_site_leads_somewhere(site, pages):
    broken = []
    for path, page in pages.items():
        for link in page.links:
            parts = urlsplit(link)
            if parts.scheme:
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            place = unquote(parts.fragment)
            if not target.exists() or place and target in pages and (
                    place not in pages[target].ids):
                broken.append(f'{path.relative_to(site)}: {link}')
    assert broken == []


def test_every_public_name_is_in_the_api(site, pages):
    found = set().union(*(page.ids for path, page in pages.items() if path.parent.name == 'api'))
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
