"""No page is left out: each runs from top to bottom, here or in the test of its name."""
import copy
import re
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import torch
from helpers.page_blocks import ROOT, Block, all_pages, blocks, commands, configs, run_page
from helpers.param_groups import build_optimizer
from helpers.scripts import OPENMMLAB, run_python, without
from helpers.shrunk_configs import build, collated, samples, shrink
from mmengine import registry
from mmengine.config import Config
from mmengine.logging import MessageHub
from mmengine.model.utils import revert_sync_batchnorm
from mmengine.registry import DefaultScope

from mmposenc.class_index import CLASSES
from mmposenc.commands import COMMANDS
from mmposenc.commands.train import parse_args
from mmposenc.engine import load_config
from mmposenc.engine.config.checks import check_sections
from mmposenc.engine.config.config import LIVE_KEYS
from mmposenc.engine.config.options import check_silent_arguments
from mmposenc.engine.config.parsed import ParsedConfig
from mmposenc.engine.variants.applying import read_encoded_config
from mmposenc.engine.variants.encodings import read_entries
from mmposenc.signatures import accepted_arguments


def test_of(page: str) -> Path:
    """docs/your-config.md has tests/pages/test_your_config.py, if it needs more than to run."""
    name = Path(page).stem.lower().replace('-', '_')
    return ROOT / 'tests' / 'pages' / f'test_{name}.py'


test_of.__test__ = False


def test_every_block_of_python_is_found():
    for page in all_pages():
        fences = re.findall(r'(?im)^ *```+ *\{?py', (ROOT / page).read_text())
        assert len(fences) == len(blocks(page)), (page, 'write ```python, at the line\'s start')


def test_code_fits_the_width_of_the_site():
    for page in {*all_pages()} - {'docs/design.md'}:  # two columns in small letters
        lines = ''.join(each.code for kind in ('python', 'bash') for each in blocks(page, kind))
        assert not re.search(r'(?m)^(?!_base_).{89,}', lines), page


@pytest.mark.parametrize('page', [  # that of commands says what each takes
    page for page in all_pages() if commands(page) and page != 'docs/commands.md'])
def test_commands_of_a_page_are_understood(page):
    for name, *words in [words[1:] for words in commands(page) if words[0] == 'mmposenc']:
        if name in COMMANDS and 'NAME' not in words:
            args = import_module(f'mmposenc.commands.{name}').parse_args(words)
            if name == 'compare':  # a class of the reader's own file is not here
                read_entries([each for each in args.encodings if '.py:' not in each])


#: A page that says that torch is enough.
TORCH_ALONE = 'docs/plain-pytorch.md'
#: Pages that take seconds.
LONG = ('docs/inspect.md', TORCH_ALONE)


@pytest.mark.parametrize('page', [
    pytest.param(page, marks=[pytest.mark.slow] * (page in LONG))
    for page in all_pages() if blocks(page)])
def test_a_page_runs(page, tmp_path):
    if test_of(page).exists():
        assert f"'{page}'" in test_of(page).read_text()
        assert 'run_page(' in test_of(page).read_text()
    elif page == TORCH_ALONE:
        run_python('-c', without(*OPENMMLAB, 'torchvision') + f"""
from pathlib import Path
from helpers.page_blocks import run_page
run_page({page!r}, Path({str(tmp_path)!r}))
""")
    else:
        run_page(page, tmp_path)


#: What mmengine takes out of a section, or adds to it, before it builds.
TAKEN = {'type', '_scope_', 'priority', 'by_epoch', 'constructor', 'paramwise_cfg',
         'convert_to_iter_based'}


def load(block: Block, folder: Path) -> Config:
    """As train.py reads it, with all that train.py and test.py ask of a config."""
    path = folder / 'config.py'
    path.write_text(block.code)
    cfg = load_config(str(path))
    check_sections(ParsedConfig(cfg), ('train', 'val', 'test'))
    check_silent_arguments(ParsedConfig(cfg))
    registries = [each for each in vars(registry).values() if isinstance(each, registry.Registry)]
    for node in typed({key: value for key, value in cfg.items() if key in LIVE_KEYS - {'model'}}):
        found = None
        for each in registries:
            with each.switch_scope_and_registry(cfg.default_scope) as local:
                found = found or local.get(node['type'])
        accepted = accepted_arguments(found)
        assert accepted is None or set(node) - TAKEN <= accepted, node
    return cfg


def typed(node: Any) -> Iterator[dict]:
    """The parts of a config that are built: hooks, pipelines, data sets, evaluators."""
    if isinstance(node, dict) and isinstance(node.get('type'), str):
        yield node
    if isinstance(node, (dict, list, tuple)):
        for child in node.values() if isinstance(node, dict) else node:
            yield from typed(child)


def check_learns(cfg: Config) -> None:
    """The loss on one batch falls in four steps with the config's own optimizer, rate and clipping,
    after its warm-up."""
    cfg = shrink(cfg)
    model = revert_sync_batchnorm(build(cfg)).train()
    optimizer, losses = build_optimizer(model, cfg), []
    MessageHub.get_current_instance().update_info('iter', 0)  # BatchSyncRandomResize reads it
    with DefaultScope.overwrite_default_scope(cfg.default_scope):
        batch = collated(samples(cfg, 2))
        for _ in range(4):
            torch.manual_seed(0)  # the same dropped paths: what changes is what was learned
            data = model.data_preprocessor(copy.deepcopy(batch), training=True)
            loss, _ = model.parse_losses(model(**data, mode='loss'))
            optimizer.update_params(loss)
            losses.append(float(loss.detach()))
    assert all(loss < 100 for loss in losses) and losses[-1] < losses[0], losses


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
