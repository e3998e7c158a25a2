"""Where encodings of a model sit, in lines: this project's models, and those of others."""
import pytest
import timm
import torch
from helpers.tiny_inspected import deit, pvt, swin, vit
from mmdet.models.layers import SinePositionalEncoding
from torch import nn

from mmposenc.backbones import PVT, ViT
from mmposenc.backbones.encodings_of_model import encoding_lines

PEG, ROTARY = dict(type='mmposenc.PEG'), dict(type='mmposenc.RotaryEmbedding')
TABLE = dict(type='mmposenc.RelativePositionBias')


@pytest.mark.parametrize('build, lines', [
    (vit, []),
    (lambda: PVT(embed_dims=(32, 32, 64, 64), num_layers=(2,) * 4, num_heads=(1,) * 4,
                 sr_ratios=(1,) * 4, mlp_ratios=(1,) * 4, pos_encoding=PEG),
     ['PEG after block 0 of stages 0 to 3: 4 modules, 1,920 parameters']),
    *((lambda positions=positions: vit(num_layers=3, pos_encoding=PEG, positions=positions),
       [f'PEG {where} parameters']) for positions, where in (
        ((-1,), 'before block 0: 1 module, 160'), ((0, 2), 'after blocks 0, 2: 2 modules, 320'),
        ((0, 1, 2), 'after blocks 0 to 2: 3 modules, 480'),
        ((-1, 1), 'before block 0 and after block 1: 2 modules, 320'))),
    (lambda: deit(pos_encoding=[dict(type='mmposenc.LearnedPositionEmbedding'), PEG],
                  rel_pos_encoding=ROTARY),
     ['LearnedPositionEmbedding before block 0: 1 module, 336 parameters',
      'PEG after block 0: 1 module, 160 parameters', 'RotaryEmbedding in 3 attentions']),
    # 7 x 9 offsets of two heads, and one number each for the pairs with a class token.
    (lambda: deit(rel_pos_encoding=[ROTARY, TABLE], rel_pos_sharing='all'),
     ['RotaryEmbedding + RelativePositionBias in 3 attentions: 1 module, 132 parameters']),
    (lambda: pvt(pos_encoding=dict(type='mmposenc.ConvMLP')),
     ['ConvMLP in 2 MLPs: 2 modules, 160 parameters']),
    (lambda: swin(2), ['RelativePositionBias in 2 attentions: 2 modules, 196 parameters']),
    (lambda: swin(2, rel_pos_encoding=None),
     ['rel_pos_encoding: none in place of RelativePositionBias']),
    (lambda: swin(2, rel_pos_encoding=ROTARY),
     ['RotaryEmbedding in 2 attentions',
      'rel_pos_encoding: RotaryEmbedding in place of RelativePositionBias']),
    (lambda: swin(2, rel_pos_encoding=[TABLE, ROTARY]),
     ['RelativePositionBias + RotaryEmbedding in 2 attentions: 2 modules, 196 parameters'])])
def test_where_encodings_sit(build, lines):
    assert encoding_lines(build()) == encoding_lines(nn.ModuleDict(dict(backbone=build()))) == lines


def test_what_replaced_the_encodings_of_an_arch():
    with torch.device('meta'):
        model = ViT('dinov3-small', pos_encoding=PEG, rel_pos_encoding=None)
        assert encoding_lines(model)[1:] == [
            'rel_pos_encoding: none in place of RotaryEmbedding']
        model = PVT('v2-b0', pos_encoding=PEG, positions=(0, 1))
        assert encoding_lines(model)[1:] == ['pos_encoding: PEG in place of ConvMLP']
        assert not PVT('v2-b0', pos_encoding=dict(relu=True)).replaced_encodings['pos_encoding']


def test_encodings_of_other_libraries_are_named():
    """An attention whose class is named after what it holds (AttentionRope) is none itself. (Tables
    of a Swin: tests/lab/inspect/test_counts.py.)"""
    with torch.device('meta'):
        model = nn.ModuleDict(dict(backbone=timm.create_model('eva02_tiny_patch14_224'),
                                   positional_encoding=SinePositionalEncoding(8)))
    assert encoding_lines(model) == [
        "Eva's own pos_embed: 1 table, 49,344 parameters", "Eva's own RotaryEmbeddingCat (rope)",
        'SinePositionalEncoding (positional_encoding)']
