"""What the site adds to Sphinx: links that only a checkout can follow, sharp figures, and tables of
classes and of files."""
from __future__ import annotations

import re
import struct
from pathlib import Path
from typing import Any

from docutils import nodes
from docutils.parsers.rst import Directive
from docutils.statemachine import StringList
from jupyter_cache import get_cache
from sphinx import addnodes
from sphinx.transforms import SphinxTransform

from mmposenc.class_index import CLASSES


class FoldersAsText(SphinxTransform):
    """A link to a folder of the checkout ('configs') has no page: its words stay, without a link.

    One that leads nowhere stays as it is, and the build ends in an error.
    """

    default_priority = 5

    def apply(self, **kwargs: Any) -> None:
        here = Path(self.env.doc2path(self.env.docname)).parent
        for link in list(self.document.findall(addnodes.pending_xref)):
            if link.get('reftype') == 'myst' and (here / link['reftarget']).is_dir():
                link.replace_self(nodes.inline('', '', *link.children))


class SharpFigures(SphinxTransform):
    """A PNG is shown at half its pixels, as a sharp screen has two for each of a page's. Photos are
    JPEGs, whose pixels are those of the data."""

    default_priority = 5

    def apply(self, **kwargs: Any) -> None:
        here = Path(self.env.doc2path(self.env.docname)).parent
        for image in self.document.findall(nodes.image):
            path = here / image['uri']
            if path.suffix == '.png' and path.is_file():
                width, = struct.unpack('>I', path.read_bytes()[16:20])  # of the first chunk
                image['width'] = f'{width // 2}px'


class Classes(Directive):
    """``.. classes:: hook`` documents every class of that registry in mmposenc/class_index.py,
    ``.. classes:: model openmmlab.mmdet.detr`` those of some modules: one that is added there is
    here."""

    required_arguments = 1
    optional_arguments = 20

    def run(self) -> list[nodes.Node]:
        table, *rooms = self.arguments
        lines = [f'.. autoclass:: mmposenc.{module}.{name}'
                 for name, module in CLASSES[table.replace('-', ' ')].items()
                 if not rooms or module.startswith(tuple(rooms))]
        section = nodes.section()
        section.document = self.state.document
        self.state.nested_parse(StringList(lines, source='mmposenc/class_index.py'), 0, section)
        return section.children


def _for_the_site(app: Any, docname: str, source: list[str]) -> None:
    """A line that is only a link to a .csv file is shown as its table; a report opens; and a search
    does not begin with the READMEs of configs."""
    text = re.sub(r'^\[[^\]]*\]\((\S+\.csv)\)$',
                  r'```{csv-table}\n:file: \1\n:header-rows: 1\n```', source[0], flags=re.M)
    text = re.sub(r'\[([^\]]*)\]\(studies/(\S+\.html)\)', r'<a href="../\2">\1</a>', text)
    hidden = docname.startswith(('configs/', 'CHANGELOG'))
    source[0] = '---\nnosearch: true\n---\n' * hidden + text


def _spread(app: Any, env: Any, docnames: list[str]) -> None:
    """A process reads neighbours of this list: one notebook each. Two cannot make their cache."""
    get_cache(app.config.nb_execution_cache_path).db  # noqa: B018
    docnames.sort(key=lambda name: '/notebooks/' not in name)
    if docnames:
        docnames.insert(len(docnames) // 3, docnames.pop(0))


def setup(app: Any) -> dict[str, bool]:
    app.add_transform(FoldersAsText)
    app.add_transform(SharpFigures)
    app.add_directive('classes', Classes)
    app.connect('source-read', _for_the_site)
    app.connect('env-before-read-docs', _spread)
    return dict(parallel_read_safe=True, parallel_write_safe=True)
