"""Backbones and DETR's encoder with torch alone: the same numbers as beside OpenMMLab."""
from functools import partial
from importlib.util import find_spec

import pytest
import torch
from helpers.scripts import OPENMMLAB, run_python, without
from helpers.tiny_backbones import BUILD, results

from mmposenc.detr import DetrEncoder
from mmposenc.detr.building import build_norm
from mmposenc.detr.layers import FFN

ABSENT = (*OPENMMLAB, 'torchvision')
IRPE = dict(type='mmposenc.IRPE', rpe_on='qkv')
ENCODINGS = dict(pos_encoding=[dict(type='mmposenc.PEG'), dict(type='mmposenc.ContextPool')],
                 rel_pos_encoding=IRPE)
MODELS = {
    **{name: partial(BUILD[name], mask_padding=True, **ENCODINGS) for name in BUILD},
    'DetrEncoder': lambda: DetrEncoder(
        2, dict(self_attn_cfg=dict(embed_dims=16, num_heads=2, dropout=0.1, rel_pos_encoding=IRPE),
                ffn_cfg=dict(embed_dims=16, feedforward_channels=24, ffn_drop=0.1)),
        pos_encoding=dict(type='mmposenc.PEG', norm_act=True))}


def numbers(name):
    """Weights as they start, outputs and gradients in evaluation and training."""
    torch.manual_seed(0)
    model = MODELS[name]()
    model.init_weights()
    found = {f'weight {key}': value.clone() for key, value in model.state_dict().items()}
    for parameter in model.parameters():
        if not parameter.any():
            torch.nn.init.normal_(parameter, std=0.1)
    x, run = torch.randn(2, 3, 40, 48), partial(model, img_shapes=[(40, 48), (30, 20)])
    if name == 'DetrEncoder':
        mask = torch.zeros(2, 5, 6, dtype=torch.bool)
        mask[1, 3:], mask[1, :, 4:] = True, True
        x, pos = torch.randn(2, 2, 30, 16)

        def run(query):
            return [model(query, pos, mask.flatten(1), spatial_shapes=(5, 6))]
    for mode in (False, True):
        outs, grads = results(model.train(mode), run, x)
        found.update({f'output {mode} {i}': out.detach() for i, out in enumerate(outs)})
        found.update({f'gradient {mode} {key}': grad for key, grad in grads.items()})
    return found


@pytest.mark.skipif(find_spec('mmengine') is None, reason='needs OpenMMLab to compare with')
def test_all_numbers_are_those_beside_openmmlab(tmp_path):
    run_python('-c', without(*ABSENT) + f"""
import torch
import test_torch_alone as here
torch.set_num_threads({torch.get_num_threads()})
torch.save({{name: here.numbers(name) for name in here.MODELS}}, {str(tmp_path / 'found.pt')!r})
loaded = [name for name in sys.modules if name.split('.')[0] in {ABSENT} and sys.modules[name]]
assert not loaded, loaded
""")
    found = torch.load(tmp_path / 'found.pt')
    assert set(found) == set(MODELS)
    for name, alone in found.items():
        beside = numbers(name)
        assert list(alone) == list(beside)  # names of weights, and their order
        torch.testing.assert_close(alone, beside)


@pytest.mark.slow
def test_weights_load_and_what_mmengine_alone_does_is_refused():
    run_python('-c', without(*ABSENT) + """
import os, tempfile
import torch
from mmposenc import detr
from mmposenc.backbones import ViT, load_pretrained
sizes = dict(img_size=32, patch_size=8, embed_dims=16, num_layers=2, num_heads=2)
with tempfile.TemporaryDirectory() as folder:
    file = os.path.join(folder, 'weights.pth')
    first = ViT(**sizes)
    torch.save(first.state_dict(), file)
    second = ViT(**sizes, init_cfg=dict(type='Pretrained', checkpoint=file))
    second.init_weights()
    for name, value in first.state_dict().items():
        assert torch.equal(second.state_dict()[name], value), name
for what, part in (
        (lambda: load_pretrained(first, 'https://some.where/file.pth'),
         'without mmengine it must be a file'),
        (lambda: ViT(**sizes, init_cfg=dict(type='Xavier')), "init_cfg={'type': 'Xavier'"),
        (lambda: detr.DETR, 'mmposenc.openmmlab.mmdet.detr.detectors needs mmengine and mmcv')):
    try:
        what()
    except Exception as error:
        assert part in str(error), (part, error)
    else:
        raise AssertionError(part)
""")


@pytest.mark.skipif(find_spec('mmcv') is None, reason='needs mmcv to compare with')
@pytest.mark.parametrize('options', [
    dict(), dict(act_cfg=dict(type='GELU')),
    dict(dropout_layer=dict(type='DropPath', drop_prob=0.5))])
def test_the_feed_forward_network_equals_mmcvs(options):
    from mmcv.cnn.bricks.transformer import FFN as MMCVFFN
    ours, theirs = FFN(8, 12, **options), MMCVFFN(8, 12, **options)
    ours.load_state_dict(theirs.state_dict())
    assert list(ours.state_dict()) == list(theirs.state_dict())
    x, identity = torch.randn(2, 5, 8), torch.randn(2, 5, 8)
    for args in ((x,), (x, identity)):
        torch.testing.assert_close(ours.eval()(*args), theirs.eval()(*args))
    if 'dropout_layer' in options:  # draws differ: an image has its branch twice, or not at all
        branch = theirs(x) - x
        for image, alone, twice in zip(ours.train()(x), x, x + 2 * branch, strict=True):
            assert torch.allclose(image, alone) or torch.allclose(image, twice, atol=1e-6)


@pytest.mark.skipif(find_spec('mmcv') is None, reason='needs mmcv to compare with')
def test_norms_are_mmcvs():
    from mmcv.cnn import build_norm_layer
    for cfg in (dict(type='LN'), dict(type='LN', eps=1e-3, requires_grad=False)):
        ours, theirs = build_norm(cfg, 8), build_norm_layer(cfg, 8)[1]
        assert type(ours) is type(theirs) and ours.eps == theirs.eps
        assert ours.weight.requires_grad == theirs.weight.requires_grad
