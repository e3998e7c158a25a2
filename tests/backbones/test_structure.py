"""Where encodings of a model sit, in lines: this project's models, and stand-ins of others."""
import pytest
import torch
from helpers.tiny_inspected import deit, pvt, swin, vit
from torch import nn

from mmposenc.backbones import PVT, ViT
from mmposenc.backbones.structure import encoding_kinds, encoding_lines

PEG, ROTARY = dict(type='mmposenc.PEG'), dict(type='mmposenc.RotaryEmbedding')


def test_a_peg_in_each_stage():
    model = PVT(embed_dims=(32, 32, 64, 64), num_layers=(2,) * 4, num_heads=(1,) * 4,
                sr_ratios=(1,) * 4, mlp_ratios=(1,) * 4, pos_encoding=PEG)
    assert encoding_lines(model) == [
        f'PEG after block 0 of stages 0 to 3: 4 modules, {192 * 10:,} parameters']
    (kind,) = encoding_kinds(model)
    assert [each.numel() for each in kind.parameters.values()] == [
        number for dims in (32, 32, 64, 64) for number in (9 * dims, dims)]
    assert list(kind.modules) == [f'stages.{i}.pos_encodings.at.after0.0' for i in range(4)]


@pytest.mark.parametrize('positions, where', [
    ((-1,), 'before block 0'), ((1,), 'after block 1'), ((0, 1, 2), 'after blocks 0 to 2'),
    ((0, 2), 'after blocks 0, 2'), ((-1, 1), 'before block 0 and after block 1')])
def test_positions_in_a_plain_transformer(positions, where):
    model = vit(num_layers=3, pos_encoding=PEG, positions=positions)
    modules = f'{len(positions)} module{"s" * (len(positions) > 1)}'
    assert encoding_lines(nn.ModuleDict(dict(backbone=model))) == [
        f'PEG {where}: {modules}, {160 * len(positions)} parameters']


def test_several_kinds_at_once():
    model = deit(pos_encoding=[dict(type='mmposenc.LearnedPositionEmbedding'), PEG],
                 rel_pos_encoding=dict(type='mmposenc.RotaryEmbedding'))
    assert encoding_lines(model) == [
        'LearnedPositionEmbedding before block 0: 1 module, 336 parameters',
        'PEG after block 0: 1 module, 160 parameters', 'RotaryEmbedding in 3 attentions']
    assert encoding_lines(vit()) == []


def test_shared_and_summed_relative_encodings():
    both = dict(type='mmposenc.CombinedRPE', encodings=[
        dict(type='mmposenc.RotaryEmbedding'), dict(type='mmposenc.RelativePositionBias')])
    (line,) = encoding_lines(deit(rel_pos_encoding=both, rel_pos_sharing='all'))
    # 7 x 9 offsets, and one number each for the pairs with a class token.
    assert line == ('RotaryEmbedding + RelativePositionBias in 3 attentions: 1 module, '
                    f'{2 * (63 + 3)} parameters')


def test_encodings_inside_mlps():
    (line,) = encoding_lines(pvt(pos_encoding=dict(type='mmposenc.ConvMLP')))
    assert line == 'ConvMLP in 2 MLPs: 2 modules, 160 parameters'


@pytest.mark.parametrize('options, lines', [
    (dict(), ['RelativePositionBias in 2 attentions: 2 modules, 196 parameters']),
    (dict(rel_pos_encoding=None), ['rel_pos_encoding: none in place of RelativePositionBias']),
    (dict(rel_pos_encoding=ROTARY), ['RotaryEmbedding in 2 attentions', 'rel_pos_encoding: '
                                     'RotaryEmbedding in place of RelativePositionBias']),
    (dict(rel_pos_encoding=[dict(type='RelativePositionBias'), ROTARY]),
     ['RelativePositionBias + RotaryEmbedding in 2 attentions: 2 modules, 196 parameters'])])
def test_what_replaced_swins_own_table(options, lines):
    assert encoding_lines(swin(2, **options)) == lines


def test_what_replaced_the_encodings_of_an_arch():
    with torch.device('meta'):
        model = ViT('dinov3-small', pos_encoding=PEG, rel_pos_encoding=None)
        assert encoding_lines(model)[1:] == [
            'rel_pos_encoding: none in place of RotaryEmbedding']
        model = PVT('v2-b0', pos_encoding=PEG, positions=(0, 1))
        assert encoding_lines(model)[1:] == ['pos_encoding: PEG in place of ConvMLP']
        assert not PVT('v2-b0', pos_encoding=dict(relu=True)).replaced_encodings['pos_encoding']


class SinePositionalEncoding(nn.Module):
    """As mmdet's, by its name."""


class AttentionWithRoPE(nn.Module):
    """Named after an encoding that it holds: no encoding itself."""

    def __init__(self):
        super().__init__()
        self.proj, self.rope = nn.Linear(4, 4), RotaryEmbeddingFast()


class RotaryEmbeddingFast(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer('freqs_cos', torch.zeros(4, 4))


class WindowMSA(nn.Module):
    def __init__(self):
        super().__init__()
        self.relative_position_bias_table = nn.Parameter(torch.zeros(9, 2))
        self.register_buffer('relative_position_index', torch.zeros(4, 4, dtype=torch.long))


class Upstream(nn.Module):
    def __init__(self):
        super().__init__()
        self.pos_embed = nn.Parameter(torch.zeros(1, 17, 4))
        self.blocks = nn.ModuleList([WindowMSA(), WindowMSA(), AttentionWithRoPE()])
        self.register_buffer('position_ids', torch.zeros(4, dtype=torch.long))


def test_encodings_of_other_libraries_are_named():
    model = nn.ModuleDict(dict(backbone=Upstream(), positional_encoding=SinePositionalEncoding()))
    assert encoding_lines(model) == [
        "Upstream's own pos_embed: 1 table, 68 parameters",
        "Upstream's own relative_position_bias_table in 2 WindowMSA: 2 tables, 36 parameters",
        "Upstream's own RotaryEmbeddingFast (rope)", 'SinePositionalEncoding (positional_encoding)']
    kinds = encoding_kinds(model)
    assert all(kind.foreign for kind in kinds)
    assert sum(each.numel() for kind in kinds for each in kind.parameters.values()) == 104
