"""What is said of weights that do not fit a model."""
import torch
from torch import nn

from mmposenc.checkpoint.mismatch import mismatch_text


def test_a_releases_own_file_is_named() -> None:
    model = {'backbone.blocks.0.norm1.weight': torch.zeros(1)}
    file = {'patch_embed.proj.weight': torch.zeros(1), 'pos_embed': torch.zeros(1)}
    assert mismatch_text(model, {'freqs': torch.zeros(1), **file}).startswith(
        "these are weights of RoPE-ViT's release, which load in timm's names alone: give ")
    assert mismatch_text(model, {**file, **model}).startswith('2 unexpected')  # most of it fits


def test_what_does_not_fit_is_named_in_a_line_of_each_kind() -> None:
    model = nn.ModuleDict({'backbone': nn.Sequential(nn.Linear(2, 3), nn.BatchNorm2d(3)),
                           'head': nn.Linear(3, 5)})
    state = model.state_dict()
    other = {name: value for name, value in state.items() if 'backbone.1' not in name}
    other['head.weight'] = torch.zeros(7, 3)
    other |= {f'neck.{number}': torch.zeros(1) for number in range(14)}
    assert mismatch_text(state, state) == ''
    assert mismatch_text(state, other).splitlines() == [
        '4 missing: backbone.1.weight, backbone.1.bias, backbone.1.running_mean, '
        'backbone.1.running_var',
        f'14 unexpected: {", ".join(f"neck.{number}" for number in range(12))}, and 2 more',
        '1 of another shape: head.weight: (7, 3) in the file, (5, 3) here']
