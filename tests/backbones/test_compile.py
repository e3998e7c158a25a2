"""Models whose blocks are compiled: few graphs for ten batches of other sizes and paddings, with
the numbers and gradients of eager mode."""
import copy
from functools import partial

import pytest
import torch
from helpers.tiny_backbones import randomize
from torch._dynamo.testing import CompileCounterWithBackend

from mmposenc.backbones import PVT, Swin, ViT
from mmposenc.backbones.layers import DropPath
from mmposenc.engine.training.compiling import compile_regions
from mmposenc.functional.image_sizes import set_img_shapes

pytestmark = pytest.mark.usefixtures('fresh_compiler')
#: Height and width of both images of each batch; two batches have nothing to mask.
BATCHES = [((64, 96), (50, 64)), ((72, 88), (72, 61)), ((61, 93), (61, 93)), ((96, 64), (40, 64)),
           ((80, 80), (48, 80)), ((64, 64), (64, 32)), ((97, 65), (90, 60)), ((88, 72), (88, 70)),
           ((50, 99), (33, 44)), ((66, 70), (66, 70))]
POSITIONS = [dict(type='LearnedPositionEmbedding'), dict(type='PEG', norm_act=True)]
OPTIONS = dict(mask_padding=True, pos_encoding=POSITIONS, img_size=64, drop_path_rate=0.0)
IRPE = dict(rel_pos_encoding=dict(type='IRPE', rpe_on='k'))
PLAIN = dict(embed_dims=16, num_layers=2, num_heads=2, patch_size=8, mlp_ratio=2.0, pool=None,
             mask_padding=True, img_size=64)
_PVT = partial(PVT, embed_dims=(8,), num_layers=(2,), num_heads=(2,), sr_ratios=(2,),
               mlp_ratios=(2,), out_indices=(0,), **OPTIONS)
MODELS = {
    'PVT': lambda: _PVT(patch_sizes=(8,), **IRPE),
    'PVT v2': lambda: _PVT(patch_sizes=(4,), overlap=True, key_cells=3,
                           pos_encoding=dict(type='ConvMLP')),
    'SVT': lambda: _PVT(patch_sizes=(4,), window_sizes=(3,)),
    'ViT': lambda: ViT(embed_dims=16, num_layers=2, num_heads=2, patch_size=8, pool='cls',
                       out_indices=(0, 1), register_tokens=1, mlp='swiglu', qkv_bias='qv',
                       attn_norm=True, mlp_norm=True, **OPTIONS, **IRPE),
    'Swin': lambda: Swin(embed_dims=8, num_layers=(2,), num_heads=(2,), patch_size=8,
                         window_size=4, out_indices=(0,), **OPTIONS, **IRPE),
    # One block in windows and one on the whole grid, both of tables that are resized to it.
    'SAM': lambda: ViT(window_size=3, global_blocks=(1,), mask_window_padding=False,
                       rel_pos_encoding=dict(type='DecomposedRPE'), **PLAIN),
    'RF-DETR': lambda: ViT(window_count=2, window_tokens='copied', global_blocks=(1,),
                           register_tokens=2, **{**PLAIN, 'mask_padding': False}),
    'windows': lambda: ViT(window_size=3, global_blocks=(1,), register_tokens=2, **PLAIN),
    'DINOv3': lambda: ViT(register_tokens=2, norm='rms', attn_norm='qk', rel_pos_encoding=dict(
        type='RotaryEmbedding', axes='yx', planes='halves', normalize='separate',
        register_grid=(1, 2)), **PLAIN)}
#: Graphs of batches with padding, then without: Swin's windows are shifted or not. Blocks whose
#: encoding follows each image's extent are compiled in seven parts round their attention.
GRAPHS = {'PVT': (1, 1), 'PVT v2': (1, 1), 'SVT': (2, 2), 'ViT': (1, 1), 'Swin': (2, 2),
          'SAM': (1 + 6, 2), 'windows': (2, 2), 'RF-DETR': (2, 0), 'DINOv3': (6, 1)}


def outputs(model, sizes, seed):
    """Maps and gradients of a batch of random images."""
    torch.manual_seed(seed)
    x = torch.randn(2, 3, *(max(side) for side in zip(*sizes, strict=True)))
    model.zero_grad()
    outs = model(set_img_shapes(x, sizes))
    sum(out.square().mean() for out in outs).backward()
    return ([out.detach() for out in outs],
            {name: p.grad for name, p in model.named_parameters() if p.grad is not None})


@pytest.mark.parametrize('kind, backend, batches', [('PVT', 'eager', 4), *(
    pytest.param(*each, 10, marks=pytest.mark.slow) for each in (
        # What a compiler makes of backward passes, two of them show: it takes half of the time.
        ('PVT', 'aot_eager'), ('Swin', 'aot_eager'), ('ViT', 'eager'), ('SAM', 'eager'),
        ('windows', 'eager'), ('RF-DETR', 'eager'),
        ('DINOv3', 'eager'), ('PVT v2', 'eager'), ('SVT', 'eager')))])
def test_few_graphs_for_many_batches(kind, backend, batches):
    model = randomize(MODELS[kind]()).train()
    eager, names = copy.deepcopy(model), list(model.state_dict())
    counter = CompileCounterWithBackend(backend)
    padded, whole = GRAPHS[kind]
    assert compile_regions(model, backend=counter, dynamic=True, fullgraph=padded < 3) == {
        f'{type(model).__name__}Block': 2}
    assert list(model.state_dict()) == names
    for seed, sizes in enumerate(BATCHES[:batches]):
        maps, grads = outputs(model, sizes, seed)
        expected_maps, expected_grads = outputs(eager, sizes, seed)
        torch.testing.assert_close(maps, expected_maps, rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(grads, expected_grads, rtol=1e-4, atol=1e-5)
        if seed == 1:  # no other graph for other sizes and paddings
            assert counter.frame_count == padded
    assert counter.frame_count == padded + whole


#: Whole models, with what their encodings draw in each step.
WHOLE = {
    'DeiT': dict(), 'iRPE': IRPE, **{name: dict(rel_pos_encoding=dict(
        type='RotaryEmbedding', **options)) for name, options in {
            'RoPE': {}, 'RoPE-Mixed': dict(directions='learned'),
            'EVA-02': dict(axes='yx', reference_grid=(16, 16)),
            'DINOv3': dict(planes='halves', normalize='separate', shift=0.1, jitter=1.2,
                           rescale=2.0)}.items()},
    'Swin': None, 'PVT': None}


@pytest.mark.parametrize('kind', [pytest.param(kind, marks=() if kind in ('DINOv3', 'Swin') else (
    pytest.mark.slow,)) for kind in WHOLE])
def test_a_whole_model_is_one_graph_without_a_break(kind):
    """In training; one graph more for all other sizes of images."""
    own = {'Swin': lambda: Swin(embed_dims=8, num_layers=(2, 2), num_heads=(2, 2), window_size=4),
           'PVT': lambda: _PVT(patch_sizes=(8,), **{**IRPE, 'mask_padding': False})}
    model = own[kind]() if kind in own else ViT(**{**PLAIN, 'mask_padding': False}, **WHOLE[kind])
    model, counter = randomize(model).train(), CompileCounterWithBackend('eager')
    compiled = torch.compile(model, backend=counter, dynamic=True, fullgraph=True)
    for side in (64, 96, 72):
        images, results = torch.randn(2, 3, 64, side), []
        for run in (model, compiled):
            torch.manual_seed(side)
            model.zero_grad()
            sum(out.square().mean() for out in run(images)).backward()
            results.append([p.grad for p in model.parameters() if p.grad is not None])
        torch.testing.assert_close(*results, rtol=1e-3, atol=1e-5)
    assert counter.frame_count <= 2


def test_rates_of_drop_path_share_a_graph():
    counter = CompileCounterWithBackend('aot_eager')
    x = torch.ones(64, 3, 4)
    for rate in (0.1, 0.25, 0.5):
        drop = DropPath(rate)
        compile_regions(drop, ['DropPath'], backend=counter, dynamic=True, fullgraph=True)
        out = drop(x)[:, 0, 0]
        assert set(out.tolist()) <= {0.0, torch.tensor(1 / (1 - rate)).item()}
        assert 0 < (out == 0).sum() < 64
    assert counter.frame_count == 1
    drop.drop_prob = 0.0
    torch.testing.assert_close(drop(x), x)
