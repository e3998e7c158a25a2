"""Small models that figures are drawn of and that are diagnosed, and attention computed anew."""
import math

import numpy as np
import torch
from tinybackbones import randomize, randomized

from mmposenc.backbones import PVT, DeiT, Swin, ViT
from mmposenc.lab.diagnose.features import Examined
from mmposenc.lab.figures.paper_figures import Choice, Subject, draw_figure

IRPE = dict(type='mmposenc.IRPE', method='product', rpe_on='k')


def deit(seed=0, **options):
    """Three blocks on 4 x 5 tokens, with tables that are not zero."""
    torch.manual_seed(seed)
    model = DeiT(**{**dict(img_size=(32, 40), patch_size=8, embed_dims=16, num_layers=3,
                           num_heads=2, mlp_ratio=2, pool='cls'), **options})
    randomize(model, 0.4)
    return model.eval()


def pvt(**options):
    """Two stages, the first with keys of 2 x 2 cells: 4 pixels a cell, then 8."""
    torch.manual_seed(0)
    return PVT(embed_dims=(8, 8), num_layers=(1, 1), num_heads=(2, 1), sr_ratios=(2, 1),
               mlp_ratios=(1, 1), patch_sizes=(4, 2), out_indices=(1,), **options).eval()


def swin(layers, **options):
    """One stage of windows of 4 cells, 4 pixels each."""
    torch.manual_seed(0)
    return Swin(embed_dims=8, num_layers=(layers,), num_heads=(2,), window_size=4,
                out_indices=(0,), **options).eval()


def vit(**options):
    """Two blocks on cells of 8 pixels, no class token, no encoding."""
    torch.manual_seed(0)
    return randomized(ViT(**{**dict(embed_dims=16, num_layers=2, num_heads=2, patch_size=8,
                                    img_size=64, pool='gap'), **options})).eval()


def examined(model):
    """A model as the measures of a diagnosis take it."""
    return Examined(model.eval())


def subject(model, size=(32, 40)):
    image = torch.randn(1, 3, *size, generator=torch.Generator().manual_seed(1))
    return Subject(model, lambda: model(image), 'test.py, untrained')


def draw(name, model, size=(32, 40), **choice):
    return draw_figure(name, [subject(model, size)], Choice(**choice))


@torch.no_grad()
def inputs_of(module, model):
    """What ``module`` is called with."""
    found = []
    hook = module.register_forward_pre_hook(lambda _, args: found.append(args))
    subject(model).run()
    hook.remove()
    return found[0]


@torch.no_grad()
def naive_weights(model, block, with_encoding=True):
    """softmax(q k^T / sqrt(d) + terms) of one layer of a DeiT, (heads, L, L)."""
    attn = model.blocks[block].attn
    x = inputs_of(attn, model)[0]
    q, k, _ = attn.qkv(x).view(1, -1, 3, 2, 8).permute(2, 0, 3, 1, 4)
    logits = q @ k.transpose(-2, -1) / math.sqrt(8)
    if with_encoding and attn.rel_pos_encoding is not None:
        logits = logits + attn.rel_pos_encoding.logits(q / math.sqrt(8), k, (4, 5))
    return logits.softmax(-1)[0].numpy()


def close(found, expected, atol=2e-6):
    np.testing.assert_allclose(found, expected, atol=atol, rtol=1e-5)
