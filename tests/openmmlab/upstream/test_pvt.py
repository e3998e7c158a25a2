"""Files of the pyramids: releases', the libraries', and those of a classifier."""
import mmposenc  # noqa: F401  (before OpenMMLab's packages)

# isort: split
import torch
from helpers.golden_files import load_golden
from helpers.upstream_configs import SMALL, build, theirs
from mmengine.config import Config

from mmposenc.backbones import PVT, load_pretrained

PVTS = 'mmdet', 'PyramidVisionTransformer'


def test_a_classifiers_last_norm_is_that_of_the_only_map_with_one():
    arch = SMALL['mmpretrain', 'SVT']['arch']
    sizes = {name: each for name, each in arch.items() if name not in ('strides', 'depths')}
    released = PVT(num_layers=arch['depths'], pool='gap', out_indices=(1,),
                   pos_encoding=dict(type='mmposenc.PEG'), **sizes)
    torch.nn.init.uniform_(released.norm.weight)
    model = build('mmpretrain', 'SVT', norm_after_stage=[False, True], out_indices=(1,),
                  qkv_bias=True)
    load_pretrained(model, released.state_dict())
    assert torch.equal(model.stages[1].norm.weight, released.norm.weight)


def test_a_releases_file_loads_as_in_mmdet(tmp_path):
    params, _ = load_golden('pvt_plain_21')
    for stage, side in enumerate((56, 28, 14, 7), start=1):
        rows = side ** 2 + (stage == 4)  # the class token's
        params[f'pos_embed{stage}'] = torch.randn(1, rows, 8 * stage)
    torch.save(params, tmp_path / 'release.pth')
    depths = [len({name.split('.')[1] for name in params if name.startswith(f'block{stage}.')})
              for stage in (1, 2, 3, 4)]
    models = [make(*PVTS, pretrain_img_size=224, num_layers=depths, mlp_ratios=[2, 2, 2, 2],
                   init_cfg=Config(dict(checkpoint=str(tmp_path / 'release.pth'))))
              for make in (build, theirs)]
    x = torch.randn(1, 3, 96, 160, dtype=torch.float64)
    for model in models:
        model.init_weights()
        model.double().eval()
    for got, wanted in zip(*(model(x) for model in models), strict=True):
        torch.testing.assert_close(got, wanted, rtol=1e-5, atol=1e-5)


def test_the_librarys_file_loads_but_for_what_is_replaced():
    ours, upstream = build(*PVTS, pos_encoding=dict(type='mmposenc.PEG')), theirs(*PVTS)
    load_pretrained(ours, upstream.state_dict())
    assert torch.equal(ours.stages[2].blocks[0].mlp.fc1.weight,
                       upstream.layers[2][1][1].ffn.layers[0].weight.flatten(1))
