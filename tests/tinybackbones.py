"""The three transformers with few channels and blocks, and what is measured of them."""
import torch

from mmposenc.backbones import PVT, Swin, ViT

BUILD = {
    'vit': lambda **o: ViT(**{**dict(embed_dims=16, num_layers=4, num_heads=2, patch_size=8,
                                     img_size=32, out_indices=(1, 3), final_norm='every',
                                     layer_scale_init_value=0.5), **o}),
    'pvt': lambda **o: PVT(**{**dict(embed_dims=(8, 16), num_layers=(1, 2), num_heads=(1, 2),
                                     sr_ratios=(4, 2), mlp_ratios=(2, 2), patch_sizes=(4, 2),
                                     out_indices=(0, 1), img_size=32), **o}),
    'swin': lambda **o: Swin(**{**dict(embed_dims=16, num_layers=(1, 2), num_heads=(2, 2),
                                       window_size=4, img_size=32), **o})}
STAGES = {'vit': 4, 'pvt': 2, 'swin': 2}


def randomized(model, std=0.2):
    torch.manual_seed(0)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.any():  # what starts at zero stays there
                parameter.copy_(torch.randn_like(parameter, dtype=torch.float32) * std)
    return model


def total(outs):
    torch.manual_seed(1)
    return sum((out * torch.randn_like(out)).sum() for out in outs)


def images():
    torch.manual_seed(2)
    return torch.randn(2, 3, 32, 48)


def with_gradients(model):
    return {name for name, p in model.named_parameters() if p.grad is not None and p.grad.any()}


def check_padding_is_not_seen(model, sizes, batch_hw):
    """The maps of images in a batch, of strides 4, 8, ..., against those of each image alone; zero
    beyond its cells."""
    height, width = batch_hw
    batch = torch.full((len(sizes), 3, height, width), 3.0, dtype=torch.float64)
    for image, (h, w) in enumerate(sizes):
        batch[image, :, :h, :w] = torch.randn(3, h, w, dtype=torch.float64)
    outs = model(batch, sizes)
    for image, (h, w) in enumerate(sizes):
        alone = model(batch[image:image + 1, :, :h, :w].clone())
        for stage, (own, padded) in enumerate(zip(alone, outs, strict=True)):
            rows, cols = own.shape[-2:]
            step = 4 * 2 ** stage
            assert (rows, cols) == (-(-h // step), -(-w // step))
            assert padded.shape[-2:] == (height // step, width // step)
            torch.testing.assert_close(padded[image, :, :rows, :cols], own[0])
            assert padded[image, :, rows:].abs().sum() == 0
            assert padded[image, :, :, cols:].abs().sum() == 0
