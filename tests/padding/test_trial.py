"""What the trial says of networks that read padding, and of those that do not."""
import copy
from contextlib import nullcontext

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from mmposenc.padding.trial import why_padding_is_read


class Function(nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, x):
        return self.function(x)


def attention(x):
    cells = x.flatten(2)
    return (cells @ (cells.mT @ cells).softmax(1)).view(x.shape)


READERS = {
    'mean': Function(lambda x: x + 0 * x.mean((2, 3), keepdim=True)),  # as where a scale begins
    'attention': Function(attention),
    'extension': Function(lambda x: torch.ops.aten.avg_pool2d(x, 3, 1, 1))}  # no mode sees it


def trial(layer):
    """Of a network with the layer between two that take steps."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(3, 4, 8, 8), layer, nn.BatchNorm2d(4), nn.MaxPool2d(3, 2, 1))
    model.data_preprocessor = nn.Identity()
    before = copy.deepcopy(model.state_dict()), torch.get_rng_state()

    def maps(model, batch, context):
        with context or nullcontext():
            return [{'map': model(batch + 0 * torch.rand(1))}]
    reason = why_padding_is_read(model.eval(), maps)
    assert torch.equal(before[1], torch.get_rng_state())
    assert all(torch.equal(old, new) for old, new in
               zip(before[0].values(), model.state_dict().values(), strict=True))
    assert not any(m._forward_hooks or m._forward_pre_hooks for m in model.modules())
    return reason


@pytest.mark.parametrize('name', READERS)
def test_what_reads_padding_is_found_and_named(name):
    reason = trial(READERS[name])
    assert reason == f'1 ({__name__}.{type(READERS[name]).__name__}) reads padding'


def test_a_function_without_a_form_and_maps_that_depend_on_the_size():
    rolled = Function(lambda x: torch.roll(x, 1, 2))
    assert trial(rolled).startswith(f'1 ({__name__}.Function): roll reads the padding')
    table = Function(lambda x: x + torch.linspace(0, 1, x.shape[3]))
    assert trial(table) == 'maps of an image are others where its batch is larger'


def test_layers_whose_padding_is_ignored_pass():
    squeeze = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Conv2d(4, 4, 1), nn.Sigmoid())
    assert trial(nn.Sequential(
        nn.GroupNorm(2, 4), nn.BatchNorm2d(4, track_running_stats=False),
        Function(lambda x: x * squeeze(x)), nn.Dropout(0.5),
        Function(lambda x: F.interpolate(F.avg_pool2d(x, 3, 2, 1), size=x.shape[2:])))) is None
