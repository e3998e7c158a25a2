"""Every family against OpenMMLab's model with the same weights: values and gradients, any size."""
import mmposenc  # noqa: F401  (before OpenMMLab's packages)

# isort: split
from functools import partial

import pytest
import torch
from helpers.tiny_backbones import close, flat, randomize, results
from helpers.upstream_configs import drop_in

from mmposenc.backbones import ViT, load_pretrained
from mmposenc.checkpoint import convert, recognise

GAP = partial(ViT, embed_dims=24, num_layers=3, num_heads=3, mlp_ratio=2, patch_size=8, img_size=32,
              pool='gap', pos_encoding=dict(type='mmposenc.LearnedPositionEmbedding'))


def vit(name='VisionTransformer', **options):
    arch = dict(embed_dims=24, num_layers=3, num_heads=3, feedforward_channels=48)
    return 'mmpretrain', name, dict(arch=arch, img_size=32, patch_size=8, **options)


def swin(version, **options):
    arch = dict(embed_dims=12, depths=[2, 2], num_heads=[2, 3])
    if version:
        arch['extra_norm_every_n_blocks'] = 0
    return 'mmpretrain', f'SwinTransformer{version}', dict(
        arch=arch, img_size=32, drop_path_rate=0., **options)


MMDET_SWIN = ('mmdet', 'SwinTransformer', dict(
    embed_dims=12, depths=(2, 2), num_heads=(2, 3), mlp_ratio=2, window_size=4, strides=(4, 2),
    drop_path_rate=0., out_indices=(0, 1)))


def pvt(table):
    return 'mmdet', 'PyramidVisionTransformer', dict(
        pretrain_img_size=64, embed_dims=8, num_layers=[1, 2, 1, 1], num_heads=[1, 2, 3, 4],
        mlp_ratios=[2, 2, 2, 2], use_abs_pos_embed=table, drop_path_rate=0.0)


def pyramid(library, name, **options):
    sizes = dict(embed_dims=[8, 16, 24, 32], depths=[1, 2, 1, 1], num_heads=[1, 2, 3, 4],
                 mlp_ratios=[2, 2, 2, 2], sr_ratios=[8, 4, 2, 1])
    if name == 'SVT':
        window = {'window_sizes' if library == 'mmpretrain' else 'windiow_sizes': [3, 3, 3, 3]}
        sizes.update(depths=[2, 2, 1, 1], **window)
    if library == 'mmpretrain':
        arch = dict(sizes, patch_sizes=[4, 2, 2, 2], strides=[4, 2, 2, 2])
        return library, name, dict(arch=arch, out_indices=(0, 1, 2, 3), qkv_bias=True, **options)
    return library, name, dict(sizes, qkv_bias=True, drop_path_rate=0.0, **options)


ODD = [(32, 48), (37, 51)]
#: Their library, class and arguments, sizes of images, and our model where it is no drop-in. 'gap'
#: is the mean of a map.
CASES = {
    'vit': (vit(), [(32, 32), (72, 24), *ODD]),
    'vit, scaled': (vit(layer_scale_init_value=0.1), ODD),
    'vit, distilled': (vit('DistilledVisionTransformer'), ODD),
    'vit, gap': (vit(with_cls_token=False, out_type='featmap'), ODD, GAP),
    **{f'vit, maps {indices} {norm}': (
        vit(out_type='featmap', out_indices=list(indices), final_norm=norm), ODD)
       for indices, norm in (((0, 2), True), ((0, 1, 2), False), ((1,), True))},
    'swin of mmdet': (('mmdet', 'SwinTransformer', dict(
        embed_dims=12, depths=(2, 2), num_heads=(2, 3), mlp_ratio=2, window_size=4, strides=(4, 2),
        drop_path_rate=0., out_indices=(0, 1))),
        [(32, 32), (64, 96), (160, 32), (37, 70), (20, 64), (9, 9)]),
    'swin': (swin('', window_size=4, out_indices=(1,)), [(32, 32), (64, 96), (32, 64)]),
    # Zeros that fill up windows take attention, as there.
    **{f'swin v2 {window}': (
        swin('V2', window_size=window, pad_small_map=True, out_indices=(0, 1)),
        [(32, 32), (64, 96), (37, 70), (9, 20)]) for window in ([4, 4], [4, 2])},
    'pvt': (pvt(True), [(64, 64), (64, 96), (160, 64)]),
    'pvt without a table': (pvt(False), [(64, 96)]),
    'pvt v2': (('mmdet', 'PyramidVisionTransformerV2', dict(
        embed_dims=8, num_layers=[1, 2, 1, 1], num_heads=[1, 2, 3, 4], mlp_ratios=[2] * 4,
        drop_path_rate=0.0)), [(64, 96), (101, 77)]),
    'mit': (('mmseg', 'MixVisionTransformer', dict(
        embed_dims=8, num_layers=[1, 2, 1, 1], num_heads=[1, 2, 3, 4], mlp_ratio=2)),
        [(64, 64), (50, 141)]),
    # Rows and columns of windows are filled up: none, both, or only columns.
    **{f'svt of {library}': (pyramid(library, 'SVT', norm_after_stage=True),
                             [(192, 96), (128, 64), (192, 64)])
       for library in ('mmseg', 'mmpretrain')},
    **{f'pcpvt of {library}': (pyramid(library, 'PCPVT', norm_after_stage=norm), [(64, 96)])
       for library, norm in (('mmseg', False), ('mmpretrain', True))},
}


def build(library, name, options):
    models = pytest.importorskip(f'{library}.models.backbones')
    torch.manual_seed(0)
    model = randomize(getattr(models, name)(**options)).double()
    model.eval()
    for module in model.modules():
        if hasattr(module, 'relative_coords_table'):  # in float64: its own are rounded to float32
            axes = []
            for side in module.window_size:
                offsets = torch.arange(1 - side, side, dtype=torch.float64) * 8 / (side - 1)
                axes.append(offsets.sign() * (1 + offsets.abs()).log2() / 3)
            module.relative_coords_table = torch.stack(
                torch.meshgrid(*axes, indexing='ij'), -1)[None]
    return model


@pytest.mark.parametrize('name, size', [
    pytest.param(name, size, marks=() if size == case[1][-1] else pytest.mark.slow)
    for name, case in CASES.items() for size in case[1]], ids=str)
def test_values_and_gradients(name, size):
    (library, kind, options), _, *others = CASES[name]
    theirs = build(library, kind, options)
    ours = (others[0] if others else partial(drop_in(kind), **options))().double().eval()
    load_pretrained(ours, theirs.state_dict())
    x = torch.randn(2, 3, *size, dtype=torch.float64)

    def run(image):
        outs = flat(theirs(image))
        return [out.mean((2, 3)) for out in outs] if name.endswith('gap') else outs

    outs, grads = results(ours, lambda image: flat(ours(image)), x)
    expected, their_grads = results(theirs, run, x)
    # mmpretrain resizes a table in float32.
    share = 1e-6 if name.startswith('vit') and size != (32, 32) else 1e-10
    for got, value in zip(outs, expected, strict=True):
        close(got, value, share)
    close(grads.pop(''), their_grads.pop(''), share)
    source = recognise(theirs.state_dict())
    wanted = convert(their_grads, 'mmdet-swin' if 'swin of mmdet' in name else source)
    for key, grad in grads.items():
        close(grad, wanted.pop(f'backbone.{key}'), share, key)
    assert not any(grad.any() for grad in wanted.values())
