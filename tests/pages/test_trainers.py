"""docs/trainers.md: each trainer that is installed runs; weights change, come back, and learn."""
import sys
from importlib.util import find_spec
from types import ModuleType

import pytest
import torch
from running import run_page
from torch import nn

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


def needs(name):
    return pytest.mark.skipif(name in ABSENT, reason=f'needs {name}')


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


def test_timm_makes_trains_and_saves_it(names, tmp_path):
    """What its train.py calls: the model by name, groups by layer, an average, a saver."""
    timm = pytest.importorskip('timm')
    from timm.optim import create_optimizer_v2
    from timm.utils import CheckpointSaver, ModelEmaV3
    options = dict(num_classes=3, img_size=32, patch_size=8, embed_dim=48, depth=2)
    torch.manual_seed(0)
    model = timm.create_model('vit_tiny_peg', **options)
    optimizer = create_optimizer_v2(model, 'adamw', lr=1e-3, weight_decay=0.05, layer_decay=0.8)
    decay = {id(each): group['weight_decay'] for group in optimizer.param_groups
             for each in group['params']}
    assert len(decay) == len(list(model.parameters()))
    tables = [each for name, each in model.named_parameters() if 'rel_pos_encoding' in name]
    assert tables and not any(decay[id(each)] for each in tables)
    average = ModelEmaV3(model, decay=0.5)
    start = nn.functional.cross_entropy(model(names['images']), names['labels'])
    for _ in range(12):
        loss = nn.functional.cross_entropy(model(names['images']), names['labels'])
        optimizer.zero_grad()
        loss.backward()
        assert all(each.grad is not None for each in model.parameters())
        optimizer.step()
        average.update(model)
    assert loss < 0.5 * start
    saver = CheckpointSaver(model, optimizer, model_ema=average, checkpoint_dir=str(tmp_path),
                            recovery_dir=str(tmp_path))
    saver.save_checkpoint(0, metric=1.0)
    again = timm.create_model('vit_tiny_peg', checkpoint_path=str(tmp_path / 'last.pth.tar'),
                              **options)
    with torch.no_grad():
        torch.testing.assert_close(again.eval()(names['images']),
                                   average.module.eval()(names['images']))


@needs('transformers')
@needs('accelerate')
def test_transformers(names):
    from safetensors.torch import load_file
    assert names['hf_result'].global_step == 12 and learned(names, names['hf_model'])
    again = names['Classifier']()
    again.load_state_dict(load_file(names['folder'] / 'hf/last/model.safetensors'))
    assert loss_of(names, again) == loss_of(names, names['hf_model'])
    assert names['trainer'].evaluate()['eval_loss'] < 1


@needs('accelerate')
def test_accelerate(names):
    from safetensors.torch import load_file
    assert len(names['losses']) == 12 and learned(names, names['loop_model'])
    again = names['Classifier']()
    again.load_state_dict(load_file(names['folder'] / 'accelerated/model.safetensors'))
    assert loss_of(names, again) == loss_of(names, names['loop_model'])


@needs('lightning')
def test_lightning(names):
    assert names['fitted'].global_step == 12 and learned(names, names['module'].model)
    path = names['folder'] / 'lit' / 'last.ckpt'
    again = names['Module'].load_from_checkpoint(path, weights_only=True).cpu()
    assert loss_of(names, again.model) == loss_of(names, names['module'].model)
