"""What is exact in the table of benchmarks/equivariance.py (CPVT, Appendix A), and its measure."""
import pytest
import torch
from scripts import load_script
from torch import nn

EXACT = 1e-12


@pytest.fixture(scope='module')
def script():
    return load_script('benchmarks', 'equivariance')


def errors(script, row, kind=None, seed=0):
    """The largest of the first cells and of all cells, over the shifts."""
    model = script.build(script.ROWS[row][1], seed)
    found = [script.encoding_errors(model, shift, seed) if kind is None
             else script.stack_errors(model, kind, shift, seed) for shift in script.SHIFTS]
    return tuple(map(max, zip(*found, strict=True)))


class Cells(nn.Module):
    """A map of cells, and what a function makes of it."""

    def __init__(self, make):
        super().__init__()
        self.make = make

    def forward(self, x):
        return (self.make(nn.functional.avg_pool2d(x, 4)),)


@pytest.mark.parametrize('kind', ['circular', 'view', 'object'])
def test_measure_of_maps_that_move_and_of_one_that_stays(script, kind):
    for shift in script.SHIFTS:
        assert max(script.stack_errors(Cells(lambda x: x), kind, shift, 0)) < EXACT
        table = torch.randn(1, 3, 16, 16, dtype=torch.float64)
        found = script.stack_errors(Cells(lambda x, table=table: x + table), kind, shift, 0)
        # By a loop: x cancels, so what is left is the table against itself elsewhere.
        still, _ = script.pictures(kind, shift, 0)
        x = nn.functional.avg_pool2d(still, 4)[0]
        masks = script.cells(kind, shift, 16)
        for error, mask in zip(found, masks, strict=True):
            above = below = 0.0
            for row, col in mask.nonzero().tolist():
                here = table[0, :, row, col]
                there = table[0, :, row + shift[0], col + shift[1]]
                above += float((there - here).square().sum())
                below += float((x[:, row, col] + here).square().sum())
            assert error == pytest.approx((above / below) ** 0.5)


def test_cells_that_count(script):
    few, every = script.cells('view', (2, -3), 16)
    assert every.sum() == 14 * 13 and not every[14:].any() and not every[:, :3].any()
    assert few.nonzero().amin(0).tolist() == [4, 7] and few.nonzero().amax(0).tolist() == [9, 11]
    few, every = script.cells('view', (0, 1), 14)  # a map that lost its border
    assert few.nonzero().amin(0).tolist() == [3, 3] and few.nonzero().amax(0).tolist() == [10, 9]
    few, _ = script.cells('object', (3, 2), 16)
    assert few.nonzero().amin(0).tolist() == [5, 5] and few.sum() == 36


def test_blocks_without_an_encoding_are_equivariant_for_the_same_cells(script):
    """Self-attention is, whatever its reach; another view has other cells to attend to."""
    assert max(*errors(script, 'none', 'circular'), *errors(script, 'none', 'object')) < EXACT
    assert errors(script, 'none', 'view')[0] > 0.01


def test_convolutions_are_equivariant_but_for_their_padding(script):
    assert max(errors(script, 'peg-none')) < EXACT
    inner, all_cells = errors(script, 'peg')
    assert inner < EXACT and all_cells > 0.05
    # A torus has no border; an object that stays clear of it sees none.
    assert max(errors(script, 'peg-circular', 'circular')) < EXACT
    for row in ('peg', 'peg-none', 'peg-circular'):
        assert errors(script, row, 'object')[0] < EXACT
    # Behind attention the border is everywhere.
    assert errors(script, 'peg', 'circular')[0] > 1e-3


def test_several_convolutions_need_more_room(script, monkeypatch):
    """What the object and the border reach meets on 16 x 16 cells, and not on 32 x 32."""
    assert errors(script, 'peg-all', 'object')[0] > 1e-3
    monkeypatch.setattr(script, 'GRID', 32)
    monkeypatch.setattr(script, 'PATCH_AT', slice(11, 17))
    assert errors(script, 'peg-all', 'object')[0] < EXACT


@pytest.mark.parametrize('row', ['irpe-k', 'irpe-qkv', 'irpe-bias', 'shaw', 'swin', 'cpb',
                                 'rotary'])
def test_logits_of_relative_encodings_are_equivariant(script, row):
    assert max(errors(script, row)) < EXACT
    # Not so the stack: what a pair at the border has, moves out of the picture.
    assert errors(script, row, 'circular')[0] > 1e-3


@pytest.mark.parametrize('row', ['learned', 'sincos', 'query-absolute'])
def test_absolute_encodings_are_not(script, row):
    assert errors(script, row)[0] > 0.1
    for kind in script.KINDS:
        assert errors(script, row, kind)[0] > 0.05
