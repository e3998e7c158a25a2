"""Encodings land where they are asked to, and bad requests are named."""
import pytest
import torch
from helpers.tiny_backbones import BUILD

from mmposenc.encodings import PEG, ContextPool, PlacedEncodings, TokenEncoding, build_encoding


def test_positions_get_modules_of_their_own_and_run_in_order():
    placed = PlacedEncodings([dict(type='PEG'), dict(type='SinCosPositionEncoding')], (-1, 1), 2,
                             embed_dims=4)
    assert placed.encodings(-1)[0] is not placed.encodings(1)[0]
    x = torch.randn(1, 6, 4)
    peg, sincos = placed.encodings(1)
    out, hw, mask = placed(x, (2, 3), 1)
    torch.testing.assert_close(out, sincos(peg(x, (2, 3)), (2, 3)))
    assert hw == (2, 3) and mask is None
    same, _, _ = placed(x, (2, 3), 0)
    assert same is x


def test_what_becomes_of_a_grid():
    """One after the other: (9, 11) loses 2 rows and columns, is halved, and loses 2 again."""
    placed = PlacedEncodings(
        [dict(type='ContextPool', stride=2, default_positions=(0,)),
         dict(type='PEG', padding='none'), dict(type='SinCosPositionEncoding')], None, 2,
        embed_dims=4)
    assert [placed.out_hw_shape((9, 11), index) for index in (-1, 0, 1)] == [
        (9, 11), (3, 4), (9, 11)]
    assert [encoding.keeps_grid for index in (-1, 0) for encoding in placed.encodings(index)] == [
        True, False, False]
    before = PlacedEncodings(dict(type='PEG', padding='none'), (1, -1), 2, embed_dims=4)
    x, hw = torch.randn(1, 99, 4), (9, 11)
    for position in range(-1, 2):
        x, hw, _ = before(x, hw, position)
    assert hw == before.out_hw_shape((9, 11)) == (5, 7) and x.shape[1] == 35


def test_query_key_encodings_do_not_replace_the_tokens():
    peg = PEG(4, apply_to='qk')
    placed = PlacedEncodings(peg, (-1,), 1)
    x = torch.randn(1, 6, 4)
    assert placed(x, (2, 3), -1)[0] is x
    torch.testing.assert_close(placed.query_key_tokens(x, (2, 3), -1), peg(x, (2, 3)))
    assert placed.query_key_tokens(x, (2, 3), 0) is None


@pytest.mark.parametrize('followed', [False, True])
@pytest.mark.parametrize('asked', [(dict(type='ContextPool'), None), (dict(type='PEG'), 'every')])
def test_every_is_behind_each_block_that_an_attention_follows(asked, followed):
    placed = PlacedEncodings(*asked, 3, embed_dims=4, followed=followed)
    assert list(placed.at) == ['after0', 'after1', 'after2'][:2 + followed]
    assert len(PlacedEncodings(*asked, 1, embed_dims=4, followed=followed).at) == int(followed)


@pytest.mark.parametrize('backbone', ['pvt', 'swin'])
def test_the_last_block_of_the_last_stage_is_followed_by_no_attention(backbone):
    model = BUILD[backbone](pos_encoding=dict(type='PEG'), positions='every')
    *others, last = (len(stage.pos_encodings.at) - len(stage.blocks) for stage in model.stages)
    assert (set(others), last) == ({0}, -1)


def test_every_with_others_and_with_queries_and_keys_alone():
    placed = PlacedEncodings(
        [dict(type='PEG'), dict(type='ContextPool')], None, 3, embed_dims=4, followed=True)
    assert [[type(e) for e in placed.encodings(i)] for i in range(-1, 3)] == [
        [], [PEG, ContextPool], [ContextPool], [ContextPool]]
    placed = PlacedEncodings(dict(type='PEG', apply_to='qk'), 'every', 2, embed_dims=4,
                             followed=True)
    assert list(placed.at) == ['after0']


def test_modules_that_cannot_be():
    with pytest.raises(ValueError, match='shared between positions'):
        PlacedEncodings(PEG(4), (-1, 0), 2, embed_dims=4)
    with pytest.raises(ValueError, match='Linear is no TokenEncoding'):
        build_encoding(torch.nn.Linear(2, 2), TokenEncoding, 'pos_encoding', embed_dims=4)
    with pytest.raises(ValueError, match='no grid_shape; LearnedPositionEmbedding requires it'):
        build_encoding(dict(type='LearnedPositionEmbedding'), TokenEncoding, 'pos_encoding',
                       embed_dims=4, grid_shape=None)


def test_a_class_that_takes_any_argument_is_told_to_name_its_sizes():
    class Mine(TokenEncoding):
        def __init__(self, **options) -> None:
            super().__init__(**options)

        def forward(self, x, hw_shape, **options):
            return x

    with pytest.raises(ValueError, match="'embed_dims'; Mine takes any argument, so it is given "
                                         'every size: instead of .*options, name those'):
        build_encoding(dict(type=Mine), TokenEncoding, 'pos_encoding', embed_dims=4)
