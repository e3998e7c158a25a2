"""What is recorded of a model: attention by its own weights, windows by where tokens are."""
import pytest
import torch
from helpers.tiny_inspected import calls_of, deit, image, subject, vit
from torch import nn

from mmposenc.attention import MultiheadAttention, ShiftWindowAttention
from mmposenc.functional.windows import Windows
from mmposenc.lab.inspect.recording import recording_attention


def test_weights_and_what_is_added():
    """Of two layers that share an encoding, whose terms are each layer's own."""
    torch.manual_seed(0)
    layers = nn.ModuleList(MultiheadAttention(
        8, 2, num_prefix_tokens=1, rel_pos_encoding=dict(type='IRPE')) for _ in range(2))
    first, encoding = layers[0], layers[0].rel_pos_encoding
    layers[1].rel_pos_encoding = encoding
    nn.init.normal_(encoding.table_k)
    x, calls = torch.randn(2, 13, 8), []
    plain = first(x, (3, 4))
    with recording_attention(layers, calls.append):
        torch.testing.assert_close(first(x, (3, 4)), plain)  # a model sees no difference
        layers[1](x, (3, 4))
        first(x, hw_shape=(4, 3))
    assert [call.name for call in calls] == ['0', '1', '0']
    assert calls[2].grid.hw == calls[2].whole_map_shape == (4, 3)
    for layer, call in zip(layers, calls, strict=False):
        q, k, _ = layer._project(x, x)
        torch.testing.assert_close(call.weights, layer(x, (3, 4), need_weights=True)[1])
        torch.testing.assert_close(call.added, encoding.logits(q * 0.5, k, (3, 4)))
        row = call.weights[0, :, 1 + 2 * 4 + 2, 1:].mean(0).view(3, 4)
        torch.testing.assert_close(call.weights_of_token((0.99, 0.5)), row)
    # Nothing stays behind.
    assert not first._forward_hooks and not first._forward_pre_hooks
    assert 'terms' not in vars(encoding)
    assert isinstance(first(x, (3, 4)), torch.Tensor) and len(calls) == 3


@pytest.mark.parametrize('at, shift', [((0.0, 0.0), 2), ((0.0, 0.0), 0), ((0.5, 0.99), 2),
                                       ((0.99, 0.3), 2)])
def test_the_window_that_holds_a_place(at, shift):
    """Found by where the token itself is after cutting; tokens of other regions have no weight."""
    torch.manual_seed(0)
    module = ShiftWindowAttention(8, 2, 4, shift, mask_window_padding=True,
                                  rel_pos_encoding=dict(type='RelativePositionBias'))
    x, calls = torch.randn(2, 7 * 8, 8), []  # rows are filled up to 8
    plain = module(x, (7, 8))
    with recording_attention(module, calls.append):
        torch.testing.assert_close(module(x, (7, 8)), plain)
    (call,) = calls
    assert call.grid.hw == (4, 4) and call.whole_map_shape == (7, 8) and call.name == 'w_msa'
    number = int(at[0] * 7) * 8 + int(at[1] * 8)
    cutting = Windows((7, 8), (4, 4), (shift, shift))
    numbers = cutting.cut(torch.arange(1.0, 57).view(1, 7 * 8, 1))[..., 0]
    window, token = (numbers == 1 + number).nonzero()[0].tolist()
    found = call.weights_of_token(at).flatten()
    for key, cell in enumerate(numbers[window].int().tolist()):
        if cell:  # what fills up the map has no place
            assert found[cell - 1] == call.weights[window, :, token, key].mean()
    assert found.isnan().sum() == 56 - (numbers[window] > 0).sum()
    assert found.nansum() == pytest.approx(1.0)


def test_windows_of_a_plain_transformer():
    model = vit(window_size=3, global_blocks=(1,))
    windowed, everywhere = calls_of(model, 40, 64)
    assert windowed.whole_map_shape == (5, 8) and windowed.grid.hw == (3, 3)
    assert windowed.cell_of_each_query.shape == (6, 9) and (windowed.cell_of_each_query ==
                                                            -1).sum() == 6 * 9 - 40
    assert sorted(windowed.cell_of_each_query[windowed.cell_of_each_query >= 0].tolist()) == list(
        range(40))
    assert everywhere.windows is None and everywhere.cell_of_each_query.tolist(
        ) == [list(range(40))]


def test_additions_are_output_minus_input():
    model = deit(pos_encoding=[dict(type='mmposenc.LearnedPositionEmbedding'),
                               dict(type='mmposenc.PEG')])
    table, peg = subject(model).additions(image())
    assert table.name == 'pos_encodings.at.before.0' and peg.name == 'pos_encodings.at.after0.0'
    torch.testing.assert_close(table.added, table.module(torch.zeros(1, 21, 16), (4, 5),
                                                         num_prefix_tokens=1)[0, 1:].detach())
    assert peg.added.shape == (20, 16) and peg.hw_shape == (4, 5)
