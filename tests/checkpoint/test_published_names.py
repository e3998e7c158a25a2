"""Published files: weights under every name become what they become under timm's names; what a file
holds and the model computes by itself is compared, and refused or said."""

import pytest
import torch
from helpers.published_weights import (
    COMPUTED,
    DINOV3,
    KINDS,
    REGISTERS,
    VIT,
    coordinates,
    models,
    published,
)
from helpers.tiny_backbones import randomize

from mmposenc.backbones import Swin, ViT, load_pretrained
from mmposenc.checkpoint import TIMM, convert, convert_back, convert_with_report, recognise
from mmposenc.checkpoint.eva import rotary_options
from mmposenc.commands.convert import main


@pytest.mark.parametrize('kind', KINDS)
def test_other_names_are_the_same_weights(kind) -> None:
    """Which go back to timm's names as they were."""
    for build in models(kind):
        state = {name: value for name, value in randomize(build()).state_dict().items()
                 if 'relative' not in name or 'table' in name and 'coords' not in name}
        expected, file = convert(state, recognise(state)), published(kind, state)
        for prefix in ('', 'module.'):
            assert recognise({prefix + name: value for name, value in file.items()}
                             ) == KINDS[kind]['source']
        found = convert_with_report(file, KINDS[kind]['source'])
        assert found.dropped.keys() == {
            name for name, ours in KINDS[kind]['names'].items() if ours is None}
        assert all(found.dropped.values())
        torch.testing.assert_close(dict(found.state_dict), dict(expected), rtol=0, atol=0)
        if (source := recognise(state)) in TIMM:
            for name, value in convert_back(expected, source).state_dict.items():
                assert torch.equal(value, state[name]), name


def test_a_row_of_the_class_token_beside_registers_goes_back_into_it() -> None:
    """DINOv2's files have one; timm's models have none, and it is added to the token."""
    state = randomize(REGISTERS()).double().state_dict()
    row = torch.randn(1, 1, 12, dtype=torch.float64)
    with_row = {**state, 'cls_token': state['cls_token'] - row,
                'pos_embed': torch.cat((row, state['pos_embed']), 1)}
    for kind in ('dinov2', 'dinov2, hugging face'):
        file = {name.replace('reg_token', 'dinov2.embeddings.register_tokens')
                if 'hugging' in kind else name: value
                for name, value in published(kind, with_row).items()}
        converted = convert(file, recognise(file))
        for name, value in convert_back(converted).state_dict.items():
            torch.testing.assert_close(value, state[name], rtol=0, atol=1e-14)


def test_the_pooling_head_of_timm_is_dropped() -> None:
    state = VIT(global_pool='map').state_dict()
    dropped = convert_with_report(state, recognise(state)).dropped
    assert dropped and all(name.startswith('attn_pool') for name in dropped)


def test_names_of_no_dinov3() -> None:
    state = DINOV3().state_dict()
    with pytest.raises(ValueError, match="source='eva' has no rule for 1 of .*blocks.0.attn.gate"):
        convert({**state, 'blocks.0.attn.gate.weight': torch.zeros(1)}, 'eva')
    for part in 'qk':  # the first that is joined, and another
        apart = published('dinov3, hugging face', state)
        del apart[f'layer.1.attention.{part}_proj.weight']
        with pytest.raises(ValueError, match=f'is there without blocks.1.attn.{part}_proj.weight'):
            convert(apart, 'eva')


PLANES = torch.arange(16, dtype=torch.float64)


def dinov3(**options):
    return ViT('dinov3-small', **{**dict(embed_dims=128, num_layers=3, num_heads=2, img_size=32),
                                  **options}).double().eval()


def release(periods=None, mask=None):
    """A file of DINOv3's form; with other periods, another mask, or none of them."""
    state = published('dinov3', randomize(DINOV3(), 0.3).double().state_dict())
    if periods is not None:
        state['rope_embed.periods'] = periods
    for name in [name for name in state if name.endswith('bias_mask')]:
        if mask:
            state[name] = torch.tensor(mask).repeat_interleave(128)
        elif mask == ():
            del state[name]
    return state


@pytest.mark.parametrize('options', [
    dict(theta=1000.0), dict(theta=30.0), dict(periods=(0.05, 2.0)),
    dict(theta=100.0, round_periods=True)])
@pytest.mark.parametrize('kind', ['dinov3', 'dinov3, hugging face'])
def test_other_periods_are_a_warning_with_the_options_that_have_them(
        kind, options, warnings, tmp_path, capsys):
    """Also as Hugging Face saves them, inverted; and rounded as in the release."""
    told = dinov3(rel_pos_encoding=options)
    periods = told.blocks[0].attn.rel_pos_encoding.axis_periods()
    assert rotary_options(periods).items() >= options.items()
    state = published(kind, randomize(DINOV3(), 0.3).double().state_dict())
    if kind == 'dinov3':
        state['rope_embed.periods'] = periods
    else:
        state['rope_embeddings.inv_freq'] = 1 / periods
    load_pretrained(told, state)
    assert not warnings()
    if 'round_periods' in options:
        assert torch.equal(periods, COMPUTED['periods'].bfloat16().double())
        # The converted file has no periods, so the command says it.
        torch.save(state, tmp_path / 'in.pth')
        main(['auto', str(tmp_path / 'in.pth'), str(tmp_path / 'out.pth')])
        assert 'model.backbone.rel_pos_encoding.round_periods=True' in capsys.readouterr().out
    load_pretrained(dinov3(), state)
    changed = [f'rel_pos_encoding.{name}={value}'.replace(' ', '')
               for name, value in options.items() if (name, value) != ('theta', 100.0)]
    assert len(warnings()) == 1 and f'{" ".join(changed)} has its features' in warnings()[0]


def test_periods_of_other_heads_of_no_series_and_of_no_rotary_positions(warnings):
    with pytest.raises(ValueError, match='x.pth: heads have 64 .*, 32 here; give num_heads'):
        load_pretrained(dinov3(num_heads=4), release(), name='x.pth')
    with pytest.raises(ValueError, match='have periods 1, 3, .*, which are no geometric series'):
        load_pretrained(dinov3(), release(2 * PLANES + 1))
    load_pretrained(dinov3(rel_pos_encoding=None), release())
    assert 'was trained with rotary positions, and this model has none' in warnings()[0]


@pytest.mark.parametrize('mask', [(1., 0, 1), (0., 0, 0), (1., 1, 1), ()], ids=str)
def test_biases_are_those_of_the_files_mask(mask, warnings):
    """Of a file without a mask they are taken as they are, those of the keys too."""
    state = release(mask=mask)
    factor = torch.tensor(mask or (1., 1, 1)).repeat_interleave(128)
    told, plain = dinov3(qkv_bias=True), dinov3()
    load_pretrained(told, state)
    assert not warnings()
    for number, block in enumerate(told.blocks):
        assert torch.equal(block.attn.qkv.bias, state[f'blocks.{number}.attn.qkv.bias'] * factor)
    load_pretrained(plain, state)
    assert [text.endswith('qkv_bias=True has its features') for text in warnings()] == [True] * (
        factor[128:256].any())
    x = torch.randn(1, 3, 32, 48, dtype=torch.float64)
    off = float((told(x)[0] - plain(x)[0]).abs().max())
    assert off > 1e-2 if warnings() else off < 1e-12


def swin(kind, **options):
    """A file of timm's Swin with windows of 4, and ours."""
    build, = models(kind)
    v2 = dict(cosine=True, post_norm=True, qkv_bias='qv',
              rel_pos_encoding=dict(type='mmposenc.LogSpacedCPB'))
    ours = Swin(embed_dims=12, num_layers=(2, 1), num_heads=(2, 4), window_size=4,
                **(v2 if 'v2' in kind else {}), **options)
    return published(kind, dict(randomize(build()).state_dict())), ours


def test_windows_that_offsets_are_counted_in(said, warnings):
    """Windows of 4, pretrained in windows of 3."""
    state, ours = swin('swin v2, hugging face')
    name = 'swinv2.encoder.layers.0.blocks.0.attention.self.relative_coords_table'
    load_pretrained(ours, state)
    assert not warnings()
    state[name] = coordinates(4, 3)
    load_pretrained(ours, state)
    text, = warnings()
    assert 'stages.0.blocks.0' in text and (
        'in windows of (3, 3), and here are counted in others: pretrained_window_size' in text)
    said.clear()
    load_pretrained(swin('swin v2, hugging face', pretrained_window_size=3)[1], state)
    assert not warnings()
    for other in (coordinates(4, 3) ** 3, 0 * coordinates(4, 3), coordinates(4, 3) * torch.nan):
        state[name] = other
        with pytest.raises(ValueError, match='holds other coordinates than logarithms of offsets'):
            load_pretrained(ours, state)
