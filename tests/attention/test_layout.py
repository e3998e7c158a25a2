"""How an attention is cut into pieces, and the order of its keys."""
import pytest
import torch

from mmposenc.attention.fast.layout import Cut, Kept, Layout, groups
from mmposenc.functional import Grid


@pytest.mark.parametrize('cut', [Cut(1, 1), Cut(1, 1, True), Cut(200, 100), Cut(200, 100, True),
                                 Cut(500, 500, True), Cut(5000, 5000), Cut(10 ** 6, 10 ** 6, True),
                                 Cut(900, 400, most_queries=4), Cut(10 ** 6, 10 ** 6, False, 5)])
@pytest.mark.parametrize('prefix', [0, 2])
@pytest.mark.parametrize('filled', [False, True])
def test_every_query_once(cut, prefix, filled):
    layout = Layout(Grid(3, 5), Grid(2, 4), prefix, prefix + 15, prefix + 8, filled)
    seen = torch.zeros(3, 4, layout.len_q)
    for whole, pieces in groups(3, 4, layout, cut):
        assert whole.queries == slice(0, layout.len_q)
        for piece in pieces:
            assert (piece.images, piece.heads) == (whole.images, whole.heads)
            assert piece.num_heads == 4 or piece.num_images == 1
            seen[piece.images, piece.heads, piece.queries] += 1
            count = piece.queries.stop - piece.queries.start
            if cut.whole_rows:
                assert count == piece.lead + 5 * piece.num_rows
                assert piece.lead == (0 if piece.first_row else prefix)
                assert piece.queries.stop == prefix + 5 * (piece.first_row + piece.num_rows)
            assert cut.most_queries is None or count <= cut.most_queries
            least = 5 + prefix if cut.whole_rows else 1
            size = piece.size * count * layout.num_keys
            assert size <= max(cut.elements, cut.row_elements) or (
                piece.size == 1 and count <= least)
    assert bool((seen == 1).all())


@pytest.mark.parametrize('prefix', [0, 1, 3, 4, 5])
def test_order_of_keys(prefix):
    """Filled: cells, prefix tokens, and zeros up to whole rows; and back again."""
    keys = prefix + 8
    layout = Layout(Grid(3, 5), Grid(2, 4), prefix, 15, keys, True)
    assert layout.num_keys % 4 == 0 and layout.num_keys - keys == layout.fill < 4
    x = torch.arange(1.0, 1.0 + keys)[None, :, None].expand(2, -1, 3)
    arranged = layout.arrange(x, 1)
    assert torch.equal(arranged[:, layout.cells], x[:, prefix:])
    assert torch.equal(arranged[:, layout.prefix_keys], x[:, :prefix])
    assert bool((arranged[:, keys:] == 0).all())
    assert torch.equal(layout.restore(arranged), x)
    assert torch.equal(layout.arrange(x.transpose(1, 2), -1), arranged.transpose(1, 2))
    plain = layout._replace(filled=False)
    assert plain.arrange(x, 1) is x and plain.num_keys == keys
    assert torch.equal(x[:, plain.cells], x[:, prefix:])
    assert torch.equal(x[:, plain.prefix_keys], x[:, :prefix])


def test_kept_is_bounded(monkeypatch):
    kept = Kept()
    monkeypatch.setattr(Kept, 'MOST', 10)
    made = []

    def get(key):
        return kept.get((key,), lambda: made.append(key) or torch.full((6,), key), torch.numel)

    assert [int(get(key)[0]) for key in (1, 1, 2, 3, 1, 3)] == [1, 1, 2, 3, 1, 3]
    assert made == [1, 2, 3, 1]
