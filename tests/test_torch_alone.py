"""Backbones and DETR's encoder with torch alone: the same numbers as beside OpenMMLab."""
from importlib.util import find_spec

import pytest
import torch
from helpers.torch_alone import ABSENT, run_alone


@pytest.mark.skipif(find_spec('mmengine') is None, reason='needs OpenMMLab to compare with')
def test_all_numbers_are_those_beside_openmmlab(tmp_path):
    from helpers import torch_alone_models
    run_alone(f"""
import torch
from helpers import torch_alone_models
torch.set_num_threads({torch.get_num_threads()})
torch.save({{name: torch_alone_models.results(name) for name in torch_alone_models.MODELS}},
           {str(tmp_path / 'found.pt')!r})
loaded = [name for name in sys.modules if name.split('.')[0] in {ABSENT} and sys.modules[name]]
assert not loaded, loaded
""")
    found = torch.load(tmp_path / 'found.pt')
    assert set(found) == set(torch_alone_models.MODELS)
    for name, alone in found.items():
        beside = torch_alone_models.results(name)
        assert list(alone) == list(beside)  # names of weights, and their order
        for key, value in beside.items():
            torch.testing.assert_close(alone[key], value, msg=lambda text, k=key: f'{k}: {text}')


@pytest.mark.slow
def test_weights_load_and_what_mmengine_alone_does_is_refused():
    run_alone("""
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

    from mmposenc.detr.layers import FFN
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

    from mmposenc.detr.layers import build_norm
    for cfg in (dict(type='LN'), dict(type='LN', eps=1e-3, requires_grad=False)):
        ours, theirs = build_norm(cfg, 8), build_norm_layer(cfg, 8)[1]
        assert type(ours) is type(theirs) and ours.eps == theirs.eps
        assert ours.weight.requires_grad == theirs.weight.requires_grad
