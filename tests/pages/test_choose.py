"""docs/choose.md: its commands switch encodings, its numbers stand in the tables it links."""
from __future__ import annotations

import re

import pytest
from running import ROOT, commands, configs

from mmposenc import engine
from mmposenc.commands.train import parse_args

PAGE = 'docs/choose.md'


def rows() -> list[str]:
    table = (ROOT / PAGE).read_text().split('|---|---|---|---|\n')[1].split('\n\n')[0]
    return table.splitlines()


@pytest.mark.parametrize('row', rows(), ids=lambda row: row.split('|')[1].strip()[:40])
def test_numbers_of_a_row_are_those_of_its_tables(row):
    """Every number with a decimal is on one of the pages that the row links."""
    text = row.split('|')[3]
    linked = ' '.join((ROOT / 'docs' / page).read_text()
                      for page in re.findall(r'\]\(([\w-]+\.md)', text))
    for number in re.findall(r'(?<![\w.])\d*\.\d+', re.sub(r'\]\(.*?\)', ']', text)):
        assert re.search(rf'(?<![\d.])0?{re.escape(number.lstrip("0"))}0?(?!\d)', linked), number


def test_its_commands_switch_the_encoding(tmp_path):
    (tmp_path / 'my_config.py').write_text(configs('README.md')[0].code)
    found = []
    for words in commands(PAGE):
        assert words[:3] == ['mmposenc', 'train', 'my_config.py']
        args = parse_args([str(tmp_path / 'my_config.py'), *words[3:]])
        cfg = engine.load_config(args.config)
        engine.override(cfg, args.cfg_options)
        backbone = cfg.model.backbone
        found.append((backbone.get('pos_encoding'), backbone.get('rel_pos_encoding')))
    assert found[0] == (None, None)
    assert found[1][0].type == 'mmposenc.PEG' and found[1][1] is None
    assert found[2][1].type == 'mmposenc.IRPE'
