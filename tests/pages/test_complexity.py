"""docs/complexity.md: its commands with a tiny model, then its Python."""
from __future__ import annotations

import pytest
from running import commands, inside, run_page
from tinydata import detector_config

from mmposenc.commands.complexity import main

PAGE = 'docs/complexity.md'


@pytest.mark.slow
def test_the_page(tmp_path, capsys) -> None:
    config = detector_config(tmp_path / 'tiny.py', tmp_path)
    found = [words[2:] for words in commands('docs/complexity.md')
             if words[1:2] == ['complexity']]
    assert len(found) == 2
    with inside(tmp_path):
        for words in found:
            main([str(config) if word == 'CONFIG' else word for word in words])
    assert 'one image of 800 x 1344' in capsys.readouterr().out
    assert (tmp_path / 'by_size.svg').is_file()
    left = run_page('docs/complexity.md', tmp_path)
    assert left['whole'].parameters == 5717416 and round(left['whole'].macs / 1e6) == 1254
