"""Every model of timm whose weights are recognised: what they are told to need builds, and gives the
features of timm's model, or those of a look-alike that is named, or as far off as docs say."""
from __future__ import annotations

import functools
import os
import re

import pytest
import torch
from mmengine.config import Config, DictAction

import mmposenc  # noqa: F401  (before timm: it provides torchvision's operators)
from mmposenc.backbones import PVT, Swin, ViT, load_pretrained
from mmposenc.checkpoint import convert, look_alikes, needed_options, recognise

timm = pytest.importorskip('timm')


@functools.cache
def told(name):
    """A model's converted weights, of true shapes, and the options that they need."""
    with torch.device('meta'), pytest.MonkeyPatch.context() as patch:
        for fill in ('clamp_', 'uniform_', 'normal_'):  # slow there, and nothing is filled
            patch.setattr(torch.Tensor, fill, lambda tensor, *args, **kwargs: tensor)
        model = timm.create_model(name)
    state = model.state_dict()
    source = recognise(state)
    return model, None if source is None else convert(state, source)


def build(kind, options, **small):
    """As a config with ``--cfg-options`` builds it."""
    config = Config(dict(model=dict(backbone=dict())))
    config.merge_from_dict({key: DictAction._parse_iterable(value) for key, value in (
        option.removeprefix('model.backbone.').split('=', 1) for option in options)})
    arguments = {key: value for key, value in config.to_dict().items() if key != 'model'}
    return kind(**{**arguments, **small})


def shrunk(name, model, converted):
    """timm's model with two blocks (a stage) and 8 channels a head, and sizes of ours."""
    stem = type(model).__name__
    if stem.startswith('Swin'):
        heads = [layer.blocks[0].attn.num_heads for layer in model.layers]
        theirs = timm.create_model(name, embed_dim=8 * heads[0], depths=(2,) * 4, num_classes=0)
        return theirs, Swin, dict(embed_dims=8 * heads[0], num_layers=(2,) * 4, out_indices=(3,),
                                  pad_small_map=False, mask_window_padding=False)
    if stem == 'Twins':
        heads = [stage[0].attn.num_heads for stage in model.blocks]
        sizes = dict(embed_dims=[8 * each for each in heads])
        theirs = timm.create_model(name, depths=(2,) * 4, num_classes=0, **sizes)
        return theirs, PVT, dict(
            **sizes, num_layers=(2,) * 4, num_heads=heads, mlp_ratios=(8, 8, 4, 4),
            sr_ratios=(8, 4, 2, 1), pool='gap', pos_encoding=dict(type='mmposenc.PEG'))
    heads = model.blocks[0].attn.num_heads
    patch = model.patch_embed.patch_size[0]
    side = min(model.patch_embed.img_size[0], 16 * patch)
    options = dict(global_attn_indexes=(1,), img_size=28 * patch) if 'SAM' in stem else dict(
        img_size=side)
    theirs = timm.create_model(name, depth=2, embed_dim=8 * heads, **options)
    small = dict(embed_dims=8 * heads, num_layers=2, out_indices=(1,), img_size=options['img_size'],
                 mlp_hidden_dims=theirs.state_dict()['blocks.0.mlp.fc2.weight'].shape[1])
    return theirs, ViT, small


def features(model, x):
    out = model.forward_features(x)
    if out.dim() == 4:
        return out if hasattr(model, 'neck') else out.permute(0, 3, 1, 2)
    if type(model).__name__ == 'Twins':
        return out.mean(1)
    cells = out[:, getattr(model, 'num_prefix_tokens', 1):]
    patch = model.patch_embed.patch_size[0]
    return cells.mT.unflatten(2, [side // patch for side in x.shape[-2:]])


def differences(name, *extra):
    """Of the span, at the model's size and at another."""
    model, converted = told(name)
    options = [*needed_options(converted), *extra]
    torch.manual_seed(0)
    theirs, kind, small = shrunk(name, model, converted)
    theirs = theirs.double().eval()
    for parameter in theirs.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    found = []
    state = {key: value.clone() for key, value in theirs.state_dict().items()}
    if kind is ViT and any(key.endswith('cpb_mlp.2.bias') for key in converted):
        small['rel_pos_encoding'] = dict(hidden_dims=next(
            value.shape[0] for key, value in state.items() if key.endswith('rel_pos.mlp.fc1.bias')))
    patch = theirs.patch_embed.patch_size[0] if kind is not PVT else 32
    native = small.get('img_size') or getattr(theirs.patch_embed, 'img_size', (224,))[0]
    for size in ((native, native), (native + 2 * patch, native - 3 * patch)):
        resized = size != (native, native)
        if resized and kind is ViT and 'backbone.pos_encodings.at.before.0.pos_embed' in converted:
            options += ['pos_encoding.interpolation=bicubic_antialias',
                        'pos_encoding.interpolation_offset=0.0']
        ours = build(kind, options, **small).double().eval()
        load_pretrained(ours, state)
        if resized and hasattr(theirs, 'set_input_size') and not getattr(
                theirs, 'dynamic_img_size', False):
            theirs.set_input_size(img_size=size)
        x = torch.randn(1, 3, *size, dtype=torch.float64)
        with torch.no_grad():
            got, expected = ours(x)[0], features(theirs.double(), x)
        assert got.shape == expected.shape
        found.append(float((got - expected).abs().max() / (expected.max() - expected.min())))
    return found
