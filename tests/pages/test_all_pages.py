"""No page is left out: each runs from top to bottom, here or in the test of its name."""
import re
from importlib import import_module
from pathlib import Path

import pytest
from helpers.page_blocks import ROOT, all_pages, blocks, commands, configs, run_page
from helpers.page_training import load, train

from mmposenc.class_index import CLASSES
from mmposenc.commands import COMMANDS
from mmposenc.commands.train import parse_args
from mmposenc.engine.variants.applying import read_encoded_config
from mmposenc.engine.variants.encodings import read_entries


def test_of(page: str) -> Path:
    """docs/your-config.md has tests/pages/test_your_config.py, if it needs more than to run."""
    name = Path(page).stem.lower().replace('-', '_')
    return ROOT / 'tests' / 'pages' / f'test_{name}.py'


test_of.__test__ = False


def test_every_block_of_python_is_found():
    for page in all_pages():
        fences = re.findall(r'(?im)^ *```+ *\{?py', (ROOT / page).read_text())
        assert len(fences) == len(blocks(page)), (page, 'write ```python, at the line\'s start')


@pytest.mark.parametrize('page', [  # that of commands says what each takes
    page for page in all_pages() if commands(page) and page != 'docs/commands.md'])
def test_commands_of_a_page_are_understood(page):
    for name, *words in [words[1:] for words in commands(page) if words[0] == 'mmposenc']:
        if name in COMMANDS and 'NAME' not in words:
            args = import_module(f'mmposenc.commands.{name}').parse_args(words)
            if name == 'compare':  # a class of the reader's own file is not here
                read_entries([each for each in args.encodings if '.py:' not in each])


#: Pages that take seconds.
LONG = ('docs/inspect.md',)


@pytest.mark.parametrize('page', [
    pytest.param(page, marks=[pytest.mark.slow] * (page in LONG))
    for page in all_pages() if blocks(page)])
def test_a_page_runs(page, tmp_path):
    if test_of(page).exists():
        assert f"'{page}'" in test_of(page).read_text()
        assert 'run_page(' in test_of(page).read_text()
    else:
        run_page(page, tmp_path)


#: Their papers' recipes clip gradients at 0.1 and 0.01 instead.
WITHOUT_WARM_UP = {'mmposenc.DETR', 'mmposenc.ConditionalDETR', 'Mask2Former'}
CONFIGS = {f'{page}:{block.line}': block for page in all_pages() for block in configs(page)}
#: Commands that put an encoding into a config, by themselves.
WORDS = {' '.join(words): words for page in all_pages() for words in commands(page)
         if words[:2] == ['mmposenc', 'train'] and '--encoding' in words and 'CONFIG' not in words}


@pytest.mark.slow
@pytest.mark.parametrize('place', CONFIGS)
def test_a_config_of_a_page_trains(place, tmp_path):
    """Loaded, checked and built as the tools do, and a loss that is finite and falls."""
    cfg = load(CONFIGS[place], tmp_path)
    assert cfg.optim_wrapper.optimizer.type == 'AdamW'
    backbone = cfg.model.backbone.type.removeprefix('mmposenc.')
    # Under its name in the library a backbone is trained as there.
    if not CLASSES['model'].get(backbone, '').startswith('openmmlab.upstream'):
        assert cfg.optim_wrapper.clip_grad
        if cfg.model.type not in WITHOUT_WARM_UP:
            warm_up = cfg.param_scheduler[0]
            assert warm_up.type == 'LinearLR' and not warm_up.by_epoch
    check_learns(cfg)


@pytest.mark.slow
@pytest.mark.parametrize('command', WORDS)
def test_a_config_with_the_encoding_of_a_command_trains(command):
    args = parse_args(WORDS[command][2:])
    check_learns(read_encoded_config(args))


def check_learns(cfg):
    _, losses = train(cfg, steps=4)
    assert all(loss < 100 for loss in losses) and losses[-1] < losses[0], losses
