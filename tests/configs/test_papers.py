"""Papers' tables: rows are models, and their counts are what the models have."""
import re

import pytest
from helpers.scripts import ROOT, load_tool, short
from mmengine.config import Config

from mmposenc import commands
from mmposenc.catalog import papers
from mmposenc.engine import load_config

TOOL = load_tool('model_table')
VIT_B = 86_567_656 + (577 - 197) * 768


def convs(dims: int, hidden: int, outputs: int = 2) -> int:
    """Parameters of two 3x3 convolutions."""
    return hidden * (9 * dims + 1) + outputs * (9 * hidden + 1)


CP_SWIN_B = 87_768_224 + sum(
    blocks * convs(dims, 18) for blocks, dims in ((2, 128), (2, 256), (18, 512), (1, 1024)))
#: Published counts, or what a published count and the size of the encoding give.
PARAMETERS = {
    **{f'{name}_8xb128_in1k': count for name, count in {
        'cpvt-ti': 5_681_320, 'cpvt-s': 21_978_472, 'cpvt-b': 86_423_272,
        'cpvt-ti-0-5': 5_681_320 + 4 * 9 * 192, 'cpvt-ti-separable': 5_681_320 + 192 ** 2,
        'cpvt-ti-stacked4-dense': 5_681_320 - 9 * 192 + 4 * (9 * 192 ** 2 + 2 * 192),
        'deit-ti': 5_717_416, 'deit-s': 22_050_664, 'deit-b': 86_567_656,
        'deit-ti-distilled': 5_910_800, 'deit-ti-conv-projection': 5_685_352,
        'deit-ti-gap': 5_717_416 - 2 * 192,  # the class token and its row of the table
        'deit-ti-shaw8': 5_717_416 - 197 * 192 + 12 * 64 * (17 ** 2 + 1),
        'deit-ti_irpe-k': 5_755_816, 'deit-s_irpe-k': 22_089_064, 'deit-s_irpe-qk': 22_127_464,
        'deit-s_irpe-qkv': 22_165_864, 'deit-b_irpe-k': 86_606_056, 'deit-b_irpe-qkv': 86_682_856,
        'pvt-t': 13_229_288, 'pvt-s': 24_485_864, 'pvt-m': 44_208_104,
        'pvt-t-peg-gap': 12_849_640, 'pvt-s-peg-gap': 24_106_216, 'pvt-m-peg-gap': 43_828_456,
        'swin-t': 28_288_354, 'swin-s': 49_606_258, 'swin-b': 87_768_224,
        'swin-t-none': 28_288_354 - 13 ** 2 * (2 * 3 + 2 * 6 + 6 * 12 + 2 * 24),
        'swin-t-bias-peg': 28_288_354 + 10 * (96 + 192 + 384 + 768), 'cp-swin-b': CP_SWIN_B,
        'svt-b': 56_070_952, 'pvt-v2-b2': 25_362_856,  # timm's
        'vit-b': 86_567_656}.items()},
    **{f'{name}_8xb128_in1k-384px': count for name, count in {
        'vit-b': VIT_B, 'cp-vit-b': VIT_B + 11 * convs(768, 26),
        'cp-vit-b-weights-nonlocal': VIT_B + 11 * (convs(768, 13, 1) + 2 * 768 * 769),
        'cp-vit-b-10': VIT_B - 2 * (12 * 768 ** 2 + 13 * 768) + 9 * convs(768, 26),
        'cp-vit-b-wide': VIT_B + convs(768, 192),
        'cp-swin-b': CP_SWIN_B  # windows of 12 cells
        + (23 ** 2 - 13 ** 2) * (2 * 4 + 2 * 8 + 18 * 16 + 2 * 32)}.items()},
    'cp-resnet-50_8xb32_in1k': 25_557_032 + sum(convs(dims, 16) for dims in (64, 256, 512, 1024)),
    'deform-resnet-50_8xb32_in1k': 25_557_032 + 3 * 18 * (9 * 512 + 1),  # the steps of three layers
    'cp-resnet-44_1xb128_cifar10': 661_338 + convs(16, 40) + convs(32, 40)}
#: Multiply-accumulates that papers publish, to the digits they have.
MACS = {'deit-ti_8xb128_in1k': '1.3G', 'deit-b_8xb128_in1k': '17.6G', 'swin-t_8xb128_in1k': '4.5G',
        'swin-b_8xb128_in1k': '15.4G', 'pvt-t_8xb128_in1k': '1.9G', 'pvt-s_8xb128_in1k': '3.8G',
        'deit-s_8xb128_in1k': '4.6G', 'deit-s_irpe-k_8xb128_in1k': '4.66G',
        'deit-s_irpe-qkv_8xb128_in1k': '4.89G'}
#: Of each kind of model one.
KINDS = ('cpvt-ti-no-padding_8xb128_in1k', 'deit-ti-distilled_8xb128_in1k',
         'deit-s_irpe-qkv_8xb128_in1k',
         'pvt-t-peg-gap_8xb128_in1k', 'swin-t_8xb128_in1k', 'swinv2-t-w8_8xb128_in1k-256px',
         'deit-b_8xb32_cars',
         'cp-resnet-44-mlp_1xb128_cifar10', 'vit-b_8xb128_in1k-384px')


def test_counts_are_the_published_ones() -> None:
    """Of models.yaml; that models have them is below."""
    counted = {name: entry.get('counted') for name, entry in papers.models_by_name().items()}
    assert {name: counted[name]['params'] for name in PARAMETERS} == PARAMETERS
    for name, published in MACS.items():
        number, digit = TOOL.as_number(published)
        assert abs(counted[name]['macs'] - number) < 2.5 * digit, name


#: Deformable convolutions need a compiled mmcv.
COUNTED = [name for name, entry in papers.models_by_name().items()
           if 'counted' in entry and not name.startswith('deform-resnet')]


@pytest.mark.parametrize('name', short(COUNTED, *KINDS))
def test_counts_are_those_of_the_models(name: str) -> None:
    assert TOOL.count(name) == papers.models_by_name()[name]['counted']


def test_every_row_has_its_model() -> None:
    known = {path.stem for path in papers.config_folder().glob('*/*/*.py')}
    for name, entry in papers.models_by_name().items():
        if 'base' in entry:
            assert (papers.config_folder() / f'{entry["base"]}.py').is_file(), name
            known.add(name)
    for name, table in papers.tables_by_id().items():
        assert table.rows and len({len(row.numbers) for row in table.rows}) == 1, name
        for row in table.rows:
            assert row.not_here or row.model in known, row.name


def test_a_row_changes_what_it_says_and_nothing_else() -> None:
    base = load_config('mmposenc::classification/cpvt/cpvt-ti_8xb128_in1k.py')
    row = load_config('paper::cpvt/table14/2')
    assert row.model.backbone.pos_encoding.kernel_size == 7
    row.model.backbone.pos_encoding.pop('kernel_size')
    assert row.to_dict() == base.to_dict()


def test_entries_are_found_as_files_are_and_inherited_from(tmp_path) -> None:
    by_row = load_config('paper::cpvt/table14/2').to_dict()
    name = 'classification/cpvt/cpvt-ti-k7_8xb128_in1k.py'
    mine = tmp_path / 'mine.py'
    mine.write_text(f"_base_ = 'mmposenc::{name}'\n")
    for read, given in ((load_config, f'configs/{name}'), (load_config, f'mmposenc::{name}'),
                        (Config.fromfile, f'mmposenc::{name}'), (Config.fromfile, mine)):
        assert read(given).to_dict() == by_row
    with pytest.raises(FileNotFoundError,
                       match=r"no config file 'configs/other/cpvt-ti-k7_8xb128_in1k"):
        load_config('configs/other/cpvt-ti-k7_8xb128_in1k.py')


def test_the_command(capsys) -> None:
    commands.main(['papers'])
    listed = {words[0]: words[1] for words in map(str.split, capsys.readouterr().out.splitlines())}
    assert {*listed} == {*papers.tables_by_id()}
    assert {listed[name] for name in listed if name.startswith('context_pool/')} == {'ContextPool'}
    commands.main(['papers', 'cpvt/table6'])
    out = capsys.readouterr().out
    assert '72.5' in out and '5,819,560' in out and 'cpvt-ti-pos-1-k27_8xb128_in1k' in out


@pytest.mark.parametrize('said, number', [
    (5_717_416, (5_717_416, 1)), ('22.05M', (22_050_000, 10_000)), ('88M', (88e6, 1e6)),
    ('4.6G', (4.6e9, 1e8)), ('80.54 ± 0.06', None), (None, None)])
def test_counts_as_papers_give_them(said, number) -> None:
    assert TOOL.as_number(said) == (number and pytest.approx(number))


def test_metafiles_and_pages_are_up_to_date() -> None:
    TOOL.main(['--check'])


@pytest.mark.parametrize('old, new, message', [
    (', 5.7M,', ',', 'cpvt.yaml, table12, row 1 (0-1 tiny): 2 numbers for 3 columns'),
    ('5.7M,', '5;7M,', "row 1 (0-1 tiny): params='5;7M' must be a number such as"),
    ('title: One PEG', 'note: PEG\n    title: One', "table12: unknown key 'note'; did you"),
    ('title: One PEG', 'decisions: {tiny: PEG}\n    title: One', "there is no row 'tiny'"),
    ('title: One PEG or several', 'title: [One]', "title=['One'] must be a str"),
    ('venue: CPVT (ICLR 2023)', 'venu: CPVT', "cpvt.yaml: there is no 'venue'")])
def test_a_table_that_does_not_hold_together_is_named(old, new, message, tmp_path) -> None:
    (tmp_path / 'papers').mkdir()
    text = (ROOT / 'configs/papers/cpvt.yaml').read_text()
    at = text.index('[0-1 tiny, cpvt-ti_8xb128_in1k, 5.7M,') if 'cpvt-ti' in old or '5.7M' in old \
        else 0
    (tmp_path / 'papers' / 'cpvt.yaml').write_text(text[:at] + text[at:].replace(old, new, 1))
    with pytest.raises(ValueError, match=re.escape(message)):
        TOOL.check_files(tmp_path)


@pytest.mark.parametrize('entry, message', [
    ('{bases: x}', "models.yaml, a: unknown key 'bases'; did you mean 'base'"),
    ('{counted: {macs: 1}}', "models.yaml, a, counted: there is no 'params'")])
def test_a_model_that_does_not_hold_together_is_named(entry, message, tmp_path) -> None:
    (tmp_path / 'models.yaml').write_text(f'folder:\n  a: {entry}\n')
    with pytest.raises(ValueError, match=re.escape(message)):
        TOOL.check_files(tmp_path)
