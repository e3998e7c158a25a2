"""docs/trainers.md: transformers' Trainer, where it is installed, and what it trains with."""
import sys
from importlib.util import find_spec
from types import ModuleType

import pytest
import torch
from helpers.page_blocks import run_page
from safetensors.torch import load_file

PAGE = 'docs/trainers.md'
ABSENT = ['transformers'] if None in map(find_spec, ('transformers', 'accelerate')) else []


@pytest.fixture(scope='module')
def names(tmp_path_factory):
    folder = tmp_path_factory.mktemp('trainers')
    sys.modules['my_models'] = ModuleType('my_models')  # timm registers names of modules
    names = run_page(PAGE, folder, dict(__name__='my_models'), without=ABSENT)
    yield {**names, 'folder': folder}
    del sys.modules['my_models']


def loss_of(names, model):
    batch = dict(pixel_values=names['images'], labels=names['labels'])
    with torch.no_grad():
        return model.eval()(**batch)['loss'].item()


def test_tables_have_no_weight_decay(names):
    model = names['Classifier']()
    kept, rest = names['optimizer_of'](model).param_groups
    of = {id(value): name for name, value in model.named_parameters()}
    decayed = {of[id(each)] for each in kept['params']}
    free = {of[id(each)] for each in rest['params']}
    assert decayed | free == set(of.values()) and not decayed & free
    assert all('rel_pos_encoding' not in name for name in decayed)
    assert any('attn.rel_pos_encoding' in name for name in free)


@pytest.mark.skipif('transformers' in ABSENT, reason='needs transformers and accelerate')
def test_what_learned_comes_back_from_its_file(names):
    torch.manual_seed(0)
    again = names['Classifier']()
    assert loss_of(names, names['hf_model']) < 0.5 * loss_of(names, again)
    again.load_state_dict(load_file(names['folder'] / 'hf/last/model.safetensors'))
    assert loss_of(names, again) == loss_of(names, names['hf_model'])
