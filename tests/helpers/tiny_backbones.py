"""The three transformers with few channels and blocks, and what is measured of them."""
import contextlib
import functools

import pytest
import torch

from mmposenc.backbones import PVT, Swin, ViT
from mmposenc.checkpoint.encoding_names import GRIDS

KINDS = (PVT, Swin, ViT)
BUILD = {
    'vit': lambda **o: ViT(**{**dict(embed_dims=16, num_layers=4, num_heads=2, patch_size=8,
                                     img_size=32, out_indices=(1, 3), final_norm='every',
                                     layer_scale_init_value=0.5), **o}),
    'pvt': lambda **o: PVT(**{**dict(embed_dims=(8, 16), num_layers=(1, 2), num_heads=(1, 2),
                                     sr_ratios=(4, 2), mlp_ratios=(2, 2), patch_sizes=(4, 2),
                                     out_indices=(0, 1), img_size=32), **o}),
    'swin': lambda **o: Swin(**{**dict(embed_dims=16, num_layers=(1, 2), num_heads=(2, 2),
                                       window_size=4, img_size=32), **o})}
#: The size of EoMT's golden files.
EOMT = dict(embed_dims=16, num_layers=3, num_heads=2, patch_size=8, img_size=32, class_token=True,
            register_tokens=2, mlp_ratio=2, layer_scale_init_value=1.0, num_classes=3,
            num_queries=5, query_blocks=2)
STAGES = {'vit': 4, 'pvt': 2, 'swin': 2}


def randomized(model, std=0.2):
    torch.manual_seed(0)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.any():  # what starts at zero stays there
                parameter.copy_(torch.randn_like(parameter, dtype=torch.float32) * std)
    return model


def randomize(model, std=0.2):
    """Also what starts at zero or one: no part is without effect."""
    torch.manual_seed(0)
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=std)
    return model


def flat(outs):
    """What a backbone gives, the two tokens of a distilled one apart."""
    two = isinstance(outs[0], tuple) or outs[0].dim() == 3  # mmpretrain's are a tuple
    return [*outs[0]] if two else [*outs]


def total(outs):
    torch.manual_seed(1)
    return sum((out * torch.randn_like(out)).sum() for out in flat(outs))


def images():
    torch.manual_seed(2)
    return torch.randn(2, 3, 32, 48)


def with_gradients(model):
    return {name for name, p in model.named_parameters() if p.grad is not None and p.grad.any()}


def check_padding_is_not_seen(model, sizes, batch_hw):
    """Outputs and gradients of images in a batch against those of each image alone; maps are zero
    beyond its cells, and their sizes those of the batch."""
    batch = torch.full((len(sizes), 3, *batch_hw), 3.0, dtype=torch.float64)
    for image, (h, w) in enumerate(sizes):
        batch[image, :, :h, :w] = torch.randn(3, h, w, dtype=torch.float64)
    whole = [out.shape[2:] for out in flat(model(batch, [batch_hw] * len(sizes)))]
    batch.requires_grad_()
    outs = flat(model(batch, sizes))
    grads, = torch.autograd.grad(sum(out.square().sum() for out in outs), batch)
    for image, (h, w) in enumerate(sizes):
        own = batch[image:image + 1, :, :h, :w].detach().clone().requires_grad_()
        alone = flat(model(own))
        grad, = torch.autograd.grad(sum(out.square().sum() for out in alone), own)
        torch.testing.assert_close(grads[image:image + 1, :, :h, :w], grad)
        assert not grads[image, :, h:].any() and not grads[image, :, :, w:].any()
        for stage, (one, out) in enumerate(zip(alone, outs, strict=True)):
            if out.dim() == 2:
                torch.testing.assert_close(out[image], one[0])
                continue
            (rows, cols), step = one.shape[-2:], model.strides[stage]
            lost = -(-batch_hw[0] // step) - whole[stage][0]  # where an encoding takes rows away
            assert out.shape[2:] == whole[stage]
            assert (rows, cols) == (-(-h // step) - lost, -(-w // step) - lost)
            torch.testing.assert_close(out[image, :, :rows, :cols], one[0])
            assert not out[image, :, rows:].any() and not out[image, :, :, cols:].any()


def results(model, run, x):
    """Outputs, and gradients by name, that of the image by ''; every number weighs otherwise."""
    image = x.clone().requires_grad_()
    outs = list(run(image))
    loss = sum((out * torch.arange(out.numel(), dtype=out.dtype).cos().view(out.shape)).sum()
               for out in outs)
    named = {'': image, **{name: p for name, p in model.named_parameters() if p.requires_grad}}
    grads = torch.autograd.grad(loss, list(named.values()), materialize_grads=True)
    return outs, dict(zip(named, grads, strict=True))


def close(got, expected, share, name=''):
    assert got.shape == expected.shape, name
    span = float(expected.detach().max() - expected.detach().min())
    error = float((got - expected).detach().abs().max())
    assert error <= share * max(span, 1e-3), (name, error / max(span, 1e-3))


@contextlib.contextmanager
def unfilled():
    """Models of true shapes on meta, where filling them is slow, and fills nothing; those too that
    read rates of drop path from tensors."""
    # torch.device remembers the functions that it changes, at the first use: not the one below.
    torch.utils._device._device_constructors()
    with pytest.MonkeyPatch.context() as patch, torch.device('meta'):
        patch.setattr(torch, 'linspace', functools.partial(torch.linspace, device='cpu'))
        for fill in ('clamp_', 'uniform_', 'normal_'):
            patch.setattr(torch.Tensor, fill, lambda tensor, *args, **kwargs: tensor)
        yield


def without_grids(state):
    """A state dict without the grids of tables, which files of releases do not have."""
    return {key: value for key, value in state.items() if not key.endswith(GRIDS)}
