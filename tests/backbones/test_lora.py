"""Low-rank matrices beside frozen weights, by peft, which is no requirement of the tests."""
import sys

import pytest
import torch
from helpers.tiny_backbones import (
    BUILD,
    STAGES,
    images,
    randomize,
    randomized,
    total,
    with_gradients,
)
from mmengine.runner.checkpoint import _load_checkpoint_to_model, get_state_dict

from mmposenc.attention.linear import Linear, QVLinear, linear_of_channels
from mmposenc.backbones import load_pretrained


def with_lora(name, **options):
    pytest.importorskip('peft', reason="needs pip install peft 'transformers<5'",
                        exc_type=ImportError)
    lora = dict(dict(r=2, lora_alpha=6), **options.pop('lora', {}))
    return BUILD[name](**{**dict(frozen_stages=STAGES[name], lora=lora), **options}).train()


def step(model):
    """One step of gradient descent from the same gradients; what is trained."""
    total(model(images())).backward()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.grad is not None:
                parameter -= 0.5 * parameter.grad.sign()
                parameter.grad = None


@pytest.mark.parametrize('name', BUILD)
def test_nothing_changes_until_it_is_trained_and_nothing_else_is(name):
    plain = randomized(BUILD[name]()).eval()
    model = with_lora(name)
    load_pretrained(model, plain.state_dict())
    before = {key: value.clone() for key, value in plain.state_dict().items()}
    outs = model(images())
    torch.testing.assert_close(outs, plain(images()), atol=1e-5, rtol=1e-5)
    total(outs).backward()
    assert {key for key, p in model.named_parameters() if p.requires_grad} == {
        key for key, _ in model.named_parameters() if '.lora_' in key}
    assert with_gradients(model) == {key for key, _ in model.named_parameters() if 'lora_B' in key}
    step(model)
    state = model.state_dict()
    assert [key for key in state if '.lora_' not in key] == list(before)
    torch.testing.assert_close(state, before, rtol=0, atol=0)


@pytest.mark.parametrize('name', BUILD)
@pytest.mark.parametrize('options', [
    {}, dict(pos_encoding=dict(type='PEG', apply_to='qk'), positions=(-1,)),
    dict(lora=dict(target=['mlp.fc1', 'mlp.fc2', 'proj'])),
    dict(conv_projection=(0, 1)), dict(qkv_bias='qv')], ids=str)
def test_it_takes_effect_wherever_the_weights_do(name, options):
    """The model computes what one with the merged weights computes: in every path."""
    if name != 'vit' and set(options) & {'conv_projection', 'qkv_bias'}:
        pytest.skip('of ViT')
    if name == 'swin' and 'pos_encoding' in options:
        pytest.skip('which Swin does not take')
    model = randomized(with_lora(name, **options))
    torch.nn.init.normal_(model.get_parameter(next(
        key for key, _ in model.named_parameters() if 'lora_B' in key)))
    step(model)
    model.eval()
    merged = BUILD[name](**{key: value for key, value in options.items() if key != 'lora'}).eval()
    state = {key: value.clone() for key, value in model.state_dict().items()}
    for key in [key for key in state if 'lora_A' in key]:
        product = state.pop(key.replace('lora_A', 'lora_B')) @ state.pop(key)
        state[key.replace('lora_A.default.', '')] += 3 * product  # alpha / r
    merged.load_state_dict(state)
    for out, expected in zip(model(images()), merged(images()), strict=True):
        torch.testing.assert_close(out, expected, atol=1e-4 * float(expected.abs().max()), rtol=0)


def test_a_checkpoint_loads_and_merges_back():
    from mmposenc.backbones.lora import merge_lora
    model = randomized(with_lora('vit'))
    step(model)
    model.eval()
    saved = get_state_dict(model)  # what mmengine's runner saves
    again = with_lora('vit').eval()
    _load_checkpoint_to_model(again, saved, strict=True)
    plain = BUILD['vit']().eval()
    merge_lora(again)
    assert again.state_dict().keys() == plain.state_dict().keys()
    plain.load_state_dict(again.state_dict())
    for out, one, other in zip(model(images()), again(images()), plain(images()), strict=True):
        torch.testing.assert_close(one, out, atol=1e-4 * float(out.abs().max()), rtol=0)
        torch.testing.assert_close(other, one, rtol=0, atol=0)


def test_in_frozen_blocks_alone():
    model = with_lora('vit', frozen_stages=2, lora=dict(lora_dropout=0.5))
    found = {key for key, _ in model.named_parameters() if '.lora_' in key}
    assert {key[:9] for key in found} == {'blocks.0.', 'blocks.1.'}
    dropout = [m for key, m in model.named_modules() if key.endswith('lora_dropout.default')]
    assert all(m.training for m in dropout) and not model.blocks[0].drop_path.training
    total(model(images())).backward()
    assert with_gradients(model) >= {key for key in found if 'lora_B' in key}
    assert 'blocks.3.mlp.fc1.weight' in with_gradients(model)


@pytest.mark.parametrize('layer', [Linear(4, 12), QVLinear(4), Linear(4, 12, bias=False)], ids=str)
def test_some_channels_of_a_layer_and_of_one_that_is_wrapped(layer):
    randomize(layer, 1.0)
    x = torch.randn(2, 3, 4)
    for rows in (slice(4), slice(4, 12), slice(8, None)):
        for each in (layer, torch.nn.Sequential(layer)):
            torch.testing.assert_close(linear_of_channels(each, x, rows), layer(x)[..., rows])


def test_without_peft_the_error_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, 'peft', None)
    with pytest.raises(ImportError, match=r'lora=\.\.\. needs peft: pip install peft'):
        BUILD['vit'](frozen_stages=4, lora=dict(r=2))


def test_wrong_options():
    with pytest.raises(ValueError, match='lora=.* needs frozen stages'):
        BUILD['vit'](lora=dict(r=2))
    with pytest.raises(ValueError, match=r"lora.target=\('attn.kqv',\): no linear layer"):
        with_lora('vit', lora=dict(target=['attn.kqv']))
