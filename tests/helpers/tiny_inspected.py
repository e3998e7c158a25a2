"""Small models that are inspected, and what is recorded of them."""
import torch

from helpers.tiny_backbones import randomize, randomized
from mmposenc.backbones import PVT, DeiT, Swin, ViT
from mmposenc.lab.inspect.recording import InspectedModel

IRPE = dict(type='mmposenc.IRPE', method='product', rpe_on='k')


def deit(**options):
    """Three blocks on 4 x 5 tokens and a class token, with tables that are not zero."""
    torch.manual_seed(0)
    model = DeiT(**{**dict(img_size=(32, 40), patch_size=8, embed_dims=16, num_layers=3,
                           num_heads=2, mlp_ratio=2, pool='cls'), **options})
    return randomize(model, 0.4).eval()


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


def subject(model):
    """A backbone as figures and probes take it."""
    return InspectedModel(model.eval(), model)


def image(height=32, width=40, count=1):
    return torch.randn(count, 3, height, width, generator=torch.Generator().manual_seed(1))


def calls_of(model, height=32, width=40):
    return subject(model).calls(image(height, width))
