"""Metafiles: every config has an entry, and what is made from them is up to date."""
from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest
import yaml
from scripts import ROOT, load_tool

CONFIGS = ROOT / 'configs'
METAFILES = sorted(CONFIGS.glob('*/*/metafile.yml'))
MODELS = {model['Name']: model for path in METAFILES
          for model in yaml.safe_load(path.read_text())['Models']}
TABLE = load_tool('model_table')


def test_what_is_made_is_up_to_date() -> None:
    TABLE.main(['--check'])


def test_every_config_has_an_entry() -> None:
    """Base files and the small configs, which are no papers' rows, have none."""
    assert sorted(ROOT / model['Config'] for model in MODELS.values()) == sorted(
        path for path in CONFIGS.glob('*/*/*.py')
        if path.parts[-3] != '_base_' and path.parts[-2] != 'small')
    assert all(Path(model['Config']).stem == name for name, model in MODELS.items())


@pytest.mark.parametrize('path', METAFILES, ids=lambda path: '/'.join(path.parts[-3:-1]))
def test_models_are_of_their_collection_and_named_in_order(path: Path) -> None:
    meta = TABLE.read_metafile(path)
    collection, = meta['Collections']
    names = [model['Name'] for model in meta['Models']]
    assert names == [file.stem for file in sorted(path.parent.glob('*.py'))]
    assert {model['In Collection'] for model in meta['Models']} == {collection['Name']}
    assert re.fullmatch(r'https://arxiv.org/abs/\d{4}\.\d{5}', collection['Paper']['URL'])


def test_classifiers_say_where_their_numbers_are_from() -> None:
    for name, model in MODELS.items():
        if 'classification' not in model['Config']:
            continue
        said = model['Reference']
        assert {'Source', 'Top 1 Accuracy', 'Parameters', 'FLOPs'} >= set(said), name
        source = said['Source']
        assert 'Top 1 Accuracy' in said or 'not in the paper' in source, name
        # A count of the reference that ours does not meet would be a bug of the config.
        if 'Parameters' in said:
            cells = TABLE.parameter_cells(model['Metadata']['Parameters'], said['Parameters'])
            assert cells[2] == '=', name


def test_numbers_as_papers_give_them() -> None:
    assert TABLE.parse_count(5_717_416) == (5_717_416, 1)
    assert TABLE.parse_count('22.05 M') == (22_050_000, 10_000)
    assert TABLE.parse_count('88 M') == (88_000_000, 1_000_000)
    with pytest.raises(ValueError, match="Parameters: '88' must be"):
        TABLE.parse_count('88')
    assert TABLE.parameter_cells(22_054_264, '22.05 M') == ['22,054,264', '22.05 M', '=']
    assert TABLE.parameter_cells(22_064_264, '22.05 M')[2] == '+10,000'
    assert TABLE.parameter_cells(999, 1_000) == ['999', '1,000', '-1']
    assert TABLE.parameter_cells(1_234, None) == ['1,234', '-', '-']
    assert TABLE.mac_cells(1_254_000_000, 1_261_000_000) == ['1,254', '1,261', '-0.6 %']
    assert TABLE.mac_cells(4_885_000_000, 4_885_000_000)[2] == '='
    row = TABLE.table_row(dict(Name='a', Config='configs/a.py', Metadata=dict(
        Parameters=1_234, FLOPs=5_000_000), Reference={'Source': 'A', 'Top 1 Accuracy': 80.5}))
    assert row == '| [a](../configs/a.py) | 1,234 | - | - | 5 | - | - | 80.5 | A |\n'


@pytest.fixture
def copy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """One folder of configs, with what is made from it."""
    shutil.copytree(CONFIGS / 'classification' / 'swin', tmp_path / 'configs/classification/swin')
    (tmp_path / 'docs').mkdir()
    monkeypatch.setattr(TABLE, 'ROOT', tmp_path)
    TABLE.main([])
    return tmp_path


@pytest.mark.parametrize('name', ['docs/models.md', 'model-index.yml'])
def test_what_is_out_of_date_is_named(copy: Path, name: str) -> None:
    TABLE.main(['--check'])
    (copy / name).write_text((copy / name).read_text() + '\n')
    with pytest.raises(SystemExit, match=f'{name} is out of date; run python tools/model_table'):
        TABLE.main(['--check'])


def test_a_config_without_an_entry_is_named(copy: Path) -> None:
    (copy / 'configs/classification/swin/swin-x_in1k.py').write_text('')
    with pytest.raises(SystemExit, match=r"swin/metafile.yml: Models must be .*swin-x_in1k"):
        TABLE.main(['--check'])
