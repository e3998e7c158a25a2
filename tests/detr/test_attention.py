"""DETR's attention against torch's, with the defaults of mmcv's class."""
import pytest
import torch

from mmposenc.detr.attention import MultiheadAttention
from mmposenc.functional.packing import Packing

#: Tokens of the queries and of as many, or fewer, keys; their positions.
X, SAME, FEWER = (torch.randn(2, length, 8, generator=torch.Generator().manual_seed(seed))
                  for seed, length in enumerate((5, 5, 3)))
POS, KEY_POS, FEW_POS = X.flip(0) + 1, SAME.flip(1) - 1, FEWER * 2
MASK = torch.tensor([[0, 0, 1], [0, 1, 0], [1, 0, 1], [0, 0, 0], [1, 1, 0]]).bool()


def expected(module, *tokens, mask=None):
    """What torch's own class gives with the same weights; it takes the batch second."""
    out, _ = torch.nn.MultiheadAttention.forward(
        module.attn, *(x.transpose(0, 1) for x in tokens), attn_mask=mask, need_weights=False)
    return out.transpose(0, 1)


@pytest.mark.parametrize('given, reads', [
    (dict(), (X, X, X)),
    (dict(query_pos=POS), (X + POS, X + POS, X)),
    # Positions of the keys that are not given are those of as many queries, and else none.
    (dict(key=SAME, query_pos=POS), (X + POS, SAME + POS, SAME)),
    (dict(key=FEWER, query_pos=POS), (X + POS, FEWER, FEWER)),
    (dict(key=SAME, query_pos=POS, key_pos=KEY_POS), (X + POS, SAME + KEY_POS, SAME)),
    (dict(key=SAME, key_pos=KEY_POS), (X, SAME + KEY_POS, SAME)),
    (dict(key=FEWER, value=FEWER + 3, key_pos=FEW_POS), (X, FEWER + FEW_POS, FEWER + 3))])
def test_tokens_and_positions(given, reads):
    module = MultiheadAttention(8, 2)
    torch.testing.assert_close(module(X, **given), X + expected(module, *reads))
    torch.testing.assert_close(module(X, **given, identity=POS), POS + expected(module, *reads))


@pytest.mark.parametrize('mask', [
    MASK, MASK.float() * -3, MASK.expand(4, -1, -1).clone().logical_xor(
        torch.arange(4)[:, None, None] % 2 == 1), MASK.expand(4, -1, -1) * torch.arange(4.)[
            :, None, None]])
def test_masks(mask):
    """Bool: True is masked; of all images and heads, or of each."""
    module = MultiheadAttention(8, 2)
    torch.testing.assert_close(module(X, FEWER, attn_mask=mask),
                               X + expected(module, X, FEWER, FEWER, mask=mask))


def test_whole_numbers_are_no_mask():
    with pytest.raises(ValueError, match=r'dtype torch.int64; bool \(True = masked\)'):
        MultiheadAttention(8, 2)(X, FEWER, attn_mask=MASK.long())


def test_packed_images_have_no_weights_of_one_shape():
    packed = Packing.of_batch(torch.tensor([[False, False, True], [False] * 3]))
    with pytest.raises(ValueError, match='need_weights=True with packing: .*give a padded batch'):
        MultiheadAttention(8, 2)(X[:1], packing=packed, need_weights=True)
