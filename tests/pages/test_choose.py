"""docs/choose.md: its command compares encodings, its numbers stand in the tables it links."""
from __future__ import annotations

from running import commands, configs

from mmposenc import engine
from mmposenc.commands.compare import parse_args
from mmposenc.lab.compare.study.applying import apply
from mmposenc.lab.compare.study.encodings import read_entries

PAGE = 'docs/choose.md'


def test_its_command_compares_encodings_that_fit_a_users_config(tmp_path):
    (tmp_path / 'my_config.py').write_text(configs('README.md')[0].code)
    (words,) = commands(PAGE)
    assert words[:3] == ['mmposenc', 'compare', 'my_config.py']
    args = parse_args([str(tmp_path / 'my_config.py'), *words[3:]])
    assert args.seeds == 3 and args.sizes == [1, 1.5] and args.budget == 7200
    cfg = engine.load_config(args.config)
    backbones = [apply(cfg, entry).model.backbone for entry in read_entries(args.encodings)]
    found = [[(each.get(key) or {}).get('type') for key in ('pos_encoding', 'rel_pos_encoding')]
             for each in backbones]
    assert found == [[None, None], ['mmposenc.LearnedPositionEmbedding', None],
                     ['mmposenc.PEG', None], [None, 'mmposenc.IRPE']]
