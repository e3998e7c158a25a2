"""What is said of weights that do not fit a model."""
import torch
from torch import nn

from mmposenc.checkpoint.mismatch import mismatch_text


def test_a_releases_own_file_is_named() -> None:
    model = {'backbone.blocks.0.norm1.weight': torch.zeros(1)}
    file = {'patch_embed.proj.weight': torch.zeros(1), 'pos_embed': torch.zeros(1)}
    assert mismatch_text(model, file).splitlines()[0] == (
        "its names are those of source 'deit': convert it with "
        '`mmposenc convert deit FILE OUT.pth`')
    assert mismatch_text(model, {'blocks.0.attn.q_norm.weight': torch.zeros(1), **file}).startswith(
        'these are weights of a ViT with norms of queries and keys (qk_norm), as Sapiens 2; '
        'supported are')
    assert mismatch_text(model, {**file, **model}).startswith('2 unexpected')  # most of it fits


def test_names_of_one_module_stand_together() -> None:
    model = nn.ModuleDict({'backbone': nn.Sequential(nn.Linear(2, 3), nn.BatchNorm2d(3)),
                           'head': nn.Linear(3, 5)})
    state = model.state_dict()
    assert mismatch_text(state, state) == ''
    other = {name: value for name, value in state.items() if 'backbone.1' not in name}
    other['head.weight'] = torch.zeros(7, 3)
    other['neck.conv.weight'] = torch.zeros(1)
    other['neck.conv.bias'] = torch.zeros(1)
    lines = mismatch_text(state, other).splitlines()
    assert lines == [
        '4 missing: backbone.1.{weight, bias, running_mean, running_var} (4)',
        '2 unexpected: neck.conv.{weight, bias} (2)',
        '1 of another shape: head.weight: (7, 3) in the file, (5, 3) here']


def test_counters_of_batches_do_not_matter_and_long_lists_are_cut() -> None:
    assert mismatch_text({'bn.num_batches_tracked': torch.zeros(1)}, {}) == ''
    report = mismatch_text({f'a{i}.b.c.w': torch.zeros(1) for i in range(50)}, {})
    assert report.splitlines()[0].startswith('50 missing')
    assert report.splitlines()[-1] == '  ... and 30 more lines'
