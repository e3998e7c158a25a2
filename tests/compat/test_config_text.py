"""Configs that are written read back as they were."""
import enum
import math
from pathlib import Path

import numpy as np
from mmengine.config import Config

import mmposenc

NAMES = ['{{ fileDirname }}', '{{$HOME:x}}', '{{ _base_.model }}', '{{{{', '\\{{ fileDirname }}',
         'a\'b"c\\', '日本\u2028\x1b\r\n', '\udcff', "'''", '#', '}}' * 60]


def read_back(cfg: Config, path: Path) -> dict:
    path.write_text(cfg.pretty_text, encoding='utf-8')
    return Config.fromfile(path).to_dict()


def test_every_value_reads_back(tmp_path) -> None:
    cfg = Config(dict(
        norm=float('inf'), least=[-math.inf, -0.0, 1e-5], names=NAMES, one=('x' * 120,), empty={},
        keys={'class': 1, 'x y': 2, '{{ fileDirname }}': {1: None, (1, 2): True}}, raw=b'{{ a }}',
        sets=[{1, 2}, frozenset([math.inf]), set()], steps=[dict(type='A', scale=(1333, 800))] * 9))
    assert read_back(cfg, tmp_path / 'written.py') == cfg.to_dict()
    assert max(map(len, cfg.pretty_text.splitlines())) < 160


def test_what_is_no_literal_becomes_one(tmp_path) -> None:
    one = enum.IntEnum('Number', ['ONE']).ONE
    read = read_back(Config(dict(none=math.nan, path=Path('a/b'), cls=mmposenc.PEG, builtin=int,
                                 number=np.int64(3), one=one, call=len)), tmp_path / 'written.py')
    assert math.isnan(read.pop('none')) and read == dict(
        path='a/b', cls='mmposenc.encodings.peg.PEG', builtin=int, number=3, one=1, call=str(len))
