"""Each encoding has a card, with its paper."""
import re

import pytest
from helpers.page_blocks import ROOT

from mmposenc.encodings import ENCODINGS, CombinedRPE

TEXT = ''.join((ROOT / 'docs' / f'{page}.md').read_text()
               for page in ('encodings', 'relative', 'rotary'))


@pytest.mark.parametrize('name', dict.fromkeys(
    cls.__name__ for cls in ENCODINGS.values() if cls is not CombinedRPE))
def test_it_has_a_card_with_its_paper(name):
    """A section, or a row in one, of docs/encodings.md, relative.md or rotary.md."""
    sections = [each for each in TEXT.split('\n## ') if re.match(rf'.*\b{name}\b', each)]
    rows = [each for each in TEXT.splitlines() if re.match(rf'\|.*`{name}`', each)]
    assert any(re.search(r'\]\((https://|context_pool)', each) for each in sections + rows), (
        f'{name} needs a section or a row, with a link to its paper, in docs/encodings.md, '
        'relative.md or rotary.md')
