"""docs/trainers.md: each trainer that is installed runs; weights change, come back, and learn."""
import sys
from importlib.util import find_spec
from types import ModuleType

import pytest
import torch
from helpers.page_blocks import run_page

PAGE = 'docs/trainers.md'
TRAINERS = ('transformers', 'accelerate', 'lightning')
ABSENT = [name for name in TRAINERS if find_spec(name) is None]


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


def learned(names, model):
    torch.manual_seed(0)
    start = names['Classifier']()
    return loss_of(names, model) < 0.5 * loss_of(names, start)


def test_tables_have_no_weight_decay(names):
    model = names['Classifier']()
    kept, rest = names['optimizer_of'](model).param_groups
    of = {id(value): name for name, value in model.named_parameters()}
    decayed = {of[id(each)] for each in kept['params']}
    free = {of[id(each)] for each in rest['params']}
    assert decayed | free == set(of.values()) and not decayed & free
    assert all('rel_pos_encoding' not in name for name in decayed)
    assert any('attn.rel_pos_encoding' in name for name in free)


@pytest.mark.parametrize('trainer, model, file', [
    ('transformers', 'hf_model', 'hf/last'), ('accelerate', 'loop_model', 'accelerated')])
def test_what_learned_comes_back_from_its_file(names, trainer, model, file):
    if {trainer, 'accelerate'} & set(ABSENT):
        pytest.skip(f'needs {trainer} and accelerate')
    from safetensors.torch import load_file
    assert learned(names, names[model])
    again = names['Classifier']()
    again.load_state_dict(load_file(names['folder'] / file / 'model.safetensors'))
    assert loss_of(names, again) == loss_of(names, names[model])


@pytest.mark.skipif('lightning' in ABSENT, reason='needs lightning')
def test_lightning(names):
    assert learned(names, names['module'].model)
    path = names['folder'] / 'lit' / 'last.ckpt'
    again = names['Module'].load_from_checkpoint(path, weights_only=True).cpu()
    assert loss_of(names, again.model) == loss_of(names, names['module'].model)
