"""Every layer with weights is called unless it is torch's own and nothing hangs on the call: hooks
run, and wrappers without a ``weight`` have the effect that they have anywhere."""
import copy
from functools import partial

import examples
import pytest
import torch
from helpers.tiny_backbones import BUILD, images, randomize
from torch import nn
from torch.nn.utils import parametrizations, prune

from mmposenc.attention import ConvProjectionAttention, MultiheadAttention, ShiftWindowAttention
from mmposenc.attention.building import QVLinear
from mmposenc.backbones import ViT, load_pretrained
from mmposenc.checkpoint.key_biases import split_biases
from mmposenc.detr import BoxRPB, DetrEncoder, HybridEncoder, PositionRelation
from mmposenc.functional.extents import extents_to_mask
from mmposenc.functional.linear import project
from mmposenc.functional.masking import masked_batch_norm, masked_group_norm
from mmposenc.functional.tracing import are_plain

LAYERS = (nn.Linear, nn.modules.conv._ConvNd, nn.MultiheadAttention)
GRID = (5, 6)


class Doubled(nn.Module):
    """Twice a layer, which alone knows its weights."""

    def __init__(self, layer):
        super().__init__()
        self.base_layer = layer

    def forward(self, *args):
        return 2 * self.base_layer(*args)


def double(layer):
    """The same, done to the weights."""
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter *= 2


def layers_of(module, kinds=LAYERS):
    """Names of layers, of which an attention counts for its projections."""
    found = [name for name, each in module.named_modules() if isinstance(each, kinds)]
    return [name for name in found if not name.endswith('.out_proj')]


def attention(name, kind=MultiheadAttention, **given):
    encoding = name and examples.relative(name, GRID, num_prefix_tokens=1)
    module = kind(8, 2, num_prefix_tokens=1, rel_pos_encoding=encoding)
    return randomize(module).double().eval(), lambda m: m(tokens(8, 1), GRID, **given)


def token_encoding(name):
    module = randomize(examples.token(name, GRID)).double().eval()
    return module, lambda m: m(tokens(8), GRID)


def windows(name):
    module = ShiftWindowAttention(8, 2, (3, 4), (1, 2), rel_pos_encoding=examples.small(name),
                                  pad_small_map=True)
    return randomize(module).double().eval(), lambda m: m(tokens(8), GRID)


def backbone(name):
    options = dict(vit=dict(rel_pos_encoding=dict(type='LogSpacedCPB', hidden_dims=8)),
                   pvt=dict(pos_encoding=dict(type='PEG')),
                   swin=dict(rel_pos_encoding=dict(type='FIRE', hidden_dims=8)))[name]
    return (randomize(BUILD[name](**options)).double().eval(),
            lambda m: torch.cat([out.flatten(1) for out in m(images().double())], 1))


def detr(name):
    torch.manual_seed(0)
    boxes = torch.rand(2, 2, 7, 4).double()
    mask = extents_to_mask([GRID, (3, 4)], GRID, torch.device('cpu')).cells
    ffn = dict(embed_dims=8, feedforward_channels=12, act_cfg=dict(type='ReLU', inplace=True))
    encoder = dict(num_layers=2, layer_cfg=dict(
        self_attn_cfg=dict(embed_dims=8, num_heads=2), ffn_cfg=ffn))
    module, run = {
        'encoder': (lambda: DetrEncoder(**encoder),
                    lambda m: m(tokens(8), None, mask.flatten(1))),
        'hybrid': (lambda: HybridEncoder((4, 4), out_channels=8, num_blocks=1),
                   lambda m: torch.cat([out.flatten(1) for out in m(
                       (maps(4, (10, 12)), maps(4, GRID)))], 1)),
        'relation': (lambda: PositionRelation(2), lambda m: m(*boxes)),
        'box bias': (lambda: BoxRPB(2, hidden_dims=8),
                     lambda m: m(boxes[0], GRID, torch.tensor(GRID)))}[name]
    return randomize(module()).double().eval(), run


def tokens(dims, prefix=0):
    torch.manual_seed(1)
    return torch.randn(2, prefix + GRID[0] * GRID[1], dims).double()


def maps(dims, grid):
    torch.manual_seed(1)
    return torch.randn(2, dims, *grid).double()


CASES = {
    **{f'attention, {name}': (attention, name) for name in examples.RELATIVE},
    'other queries and keys': (partial(attention, x_qk=tokens(8, 1).flip(1)), None),
    'convolved': (partial(attention, kind=ConvProjectionAttention), None),
    **{f'tokens, {name}': (token_encoding, name) for name in examples.TOKEN_OPTIONS
       if 'random' not in name},
    **{f'windows, {name}': (windows, name) for name in ('LePE', 'CRPE', 'DynamicPositionBias')},
    **{f'backbone, {name}': (backbone, name) for name in BUILD},
    **{f'detr, {name}': (detr, name) for name in ('encoder', 'hybrid', 'relation', 'box bias')}}


@pytest.mark.parametrize('case', CASES)
def test_hooks_run_and_change_nothing(case):
    """Full backward hooks make outputs views, which nothing in place may change."""
    make, name = CASES[case]
    module, run = make(name)
    expected, called = run(module), set()
    names = layers_of(module, (*LAYERS, nn.LayerNorm, nn.modules.batchnorm._BatchNorm))
    for each in names:
        module.get_submodule(each).register_forward_hook(lambda *_, each=each: called.add(each))
    for each in module.modules():
        each.register_full_backward_hook(lambda *_: None)
    torch.testing.assert_close(run(module), expected)
    assert called == set(names)
    if trained := [p for p in module.parameters() if p.requires_grad]:
        run(module.train()).sum().backward()
        assert all(p.grad is not None for p in trained)


@pytest.mark.parametrize('case', CASES)
def test_a_wrapper_of_any_layer(case):
    """Without ``weight``, ``bias``, sizes or any other attribute of the layer."""
    make, name = CASES[case]
    module, run = make(name)
    for each in layers_of(module, LAYERS[:2]):
        wrapped, changed = copy.deepcopy(module), copy.deepcopy(module)
        owner, _, last = each.rpartition('.')
        setattr(wrapped.get_submodule(owner), last, Doubled(wrapped.get_submodule(each)))
        double(changed.get_submodule(each))
        torch.testing.assert_close(run(wrapped), run(changed),
                                   msg=lambda text, each=each: f'{each}: {text}')


def test_pruned_joint_projection_of_detr():
    """Pruning writes the weight in a hook of the attention, of whose output DETR takes the rest."""
    encoder = DetrEncoder(num_layers=1, layer_cfg=dict(
        self_attn_cfg=dict(embed_dims=8, num_heads=2),
        ffn_cfg=dict(embed_dims=8, feedforward_channels=12))).double()
    attn = encoder.layers[0].self_attn.attn
    prune.l1_unstructured(attn, 'in_proj_weight', 0.5)
    with torch.no_grad():
        attn.in_proj_weight_orig.mul_(3)
    for _ in range(2):  # a stale weight belongs to the first graph
        encoder(tokens(8)).sum().backward()
    torch.testing.assert_close(attn.in_proj_weight,
                               attn.in_proj_weight_orig * attn.in_proj_weight_mask)


@pytest.mark.parametrize('change', [
    lambda layer: prune.identity(layer, 'weight'), parametrizations.weight_norm,
    parametrizations.spectral_norm, lambda layer: layer.register_forward_hook(lambda *_: None),
    lambda layer: layer.register_forward_pre_hook(lambda *_: None),
    lambda layer: layer.register_full_backward_hook(lambda *_: None),
    lambda layer: setattr(layer, 'forward', layer.forward),
    lambda layer: setattr(layer, 'weight', nn.Parameter(layer.weight.as_subclass(Marked)))])
def test_what_is_plain(change):
    layer = nn.Linear(2, 2)
    network = nn.Sequential(layer, nn.ReLU())
    assert are_plain(network, layer)
    change(layer)
    assert not are_plain(network) and not are_plain(layer)


class Marked(torch.Tensor):
    """A tensor of a class of its own, such as those of quantized weights."""


def test_subclasses_and_global_hooks_are_not_plain():
    class Adapted(nn.Linear):
        pass

    assert not are_plain(Adapted(2, 2))
    handle = nn.modules.module.register_module_forward_hook(lambda *_: None)
    assert not are_plain(nn.Linear(2, 2))
    handle.remove()
    assert are_plain(nn.Linear(2, 2))


@pytest.mark.parametrize('norm, call', [
    (lambda: nn.BatchNorm2d(4), masked_batch_norm), (lambda: nn.GroupNorm(2, 4),
                                                     masked_group_norm)])
def test_hooks_of_norms_with_padding(norm, call):
    """They are called with the valid cells, of which their statistics are."""
    plain = randomize(norm()).double()
    hooked, seen = copy.deepcopy(plain), []
    hooked.register_forward_hook(lambda module, args, out: seen.append(args[0].numel()))
    mask = extents_to_mask([GRID, (3, 4)], GRID, torch.device('cpu')).cells
    x, results = maps(4, GRID).requires_grad_(), []
    for each in (hooked, plain):
        out = call(each, x, mask)
        results.append([out, *torch.autograd.grad(out.square().sum(), [x, *each.parameters()])])
    torch.testing.assert_close(*results)
    torch.testing.assert_close(hooked.state_dict(), plain.state_dict())
    assert sum(seen) == 4 * (5 * 6 + 3 * 4)


@pytest.mark.parametrize('layer', [
    nn.Linear(4, 12), QVLinear(4), nn.Linear(4, 12, bias=False)], ids=str)
def test_some_channels_of_a_layer_and_of_one_that_is_wrapped(layer):
    randomize(layer, 1.0)
    x = torch.randn(2, 3, 4)
    for rows in (slice(4), slice(4, 12), slice(8, None)):
        for each in (layer, nn.Sequential(layer)):
            torch.testing.assert_close(project(each, x, rows), layer(x)[..., rows])


@pytest.mark.parametrize('hooked', [False, True])
def test_the_bias_of_keys_is_a_part_of_the_bias_that_stays_zero(hooked):
    model = ViT(embed_dims=16, num_layers=1, num_heads=2, img_size=32, patch_size=8, qkv_bias='qv',
                pool='cls', rel_pos_encoding=dict(type='RotaryEmbedding'))
    layer, x = model.blocks[0].attn.qkv, torch.randn(2, 3, 32, 32)
    if hooked:
        layer.register_forward_hook(lambda *_: None)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1, weight_decay=0.1)
    for _ in range(2):
        model(x)[0].square().mean().backward()
        optimizer.step()
    query, key, value = layer.bias.chunk(3)
    assert query.all() and not key.any() and value.all() and not layer.bias.grad.chunk(3)[1].any()
    out, state = model.eval()(x)[0], model.state_dict()
    torch.testing.assert_close(torch.func.functional_call(model, state, (x,))[0], out)
    for old in (state, split_biases(state)):  # q_bias and v_bias, as in files of releases
        for load in (ViT.load_state_dict, load_pretrained):
            model.init_weights()
            load(model, old)
            torch.testing.assert_close(model(x)[0], out)
    plain = model.blocks[0].attn.qkv = nn.Linear(16, 48)
    plain.weight, plain.bias = layer.weight, layer.bias  # as tools swap layers
    torch.testing.assert_close(model(x)[0], out)


@pytest.mark.parametrize('name', BUILD)
def test_tools_that_go_by_the_type_of_a_layer_see_all(name):
    model = BUILD[name]().eval()
    quantized = torch.ao.quantization.quantize_dynamic(model, {nn.Linear})
    assert not any(isinstance(each, nn.Linear) for each in quantized.modules())
    x = images()
    for out, near in zip(model(x), quantized(x), strict=True):
        assert 0 < (near - out).abs().max() < 0.1 * out.abs().max()


@pytest.mark.parametrize('change', ['identity', 'cut', 'compiled'])
def test_blocks_that_are_taken_out_and_compiled_encodings(change):
    model = BUILD['vit'](out_indices=None, pool='gap', final_norm=True,
                         pos_encoding=dict(type='LearnedPositionEmbedding')).eval()
    less = copy.deepcopy(model)
    for parameter in (*less.blocks[3].attn.proj.parameters(), *less.blocks[3].mlp.fc2.parameters()):
        torch.nn.init.zeros_(parameter)
    expected = less(images())[0]
    if change == 'compiled':
        model.pos_encodings = torch.compile(model.pos_encodings, backend='eager')
        names = [name for name, _ in model.named_parameters() if '_orig_mod' in name]
        assert names and all(model.get_layer_depth(name, '')[0] == 0 for name in names)
        return
    if change == 'cut':
        model.blocks = model.blocks[:3]
    else:
        model.blocks[3] = nn.Identity()
    torch.testing.assert_close(model(images())[0], expected)
