"""The plain transformer in windows, as SAM's image encoder, ViTDet and RF-DETR have them."""
import functools
import math
import re
from argparse import Namespace

import pytest
import torch
from helpers.golden_files import assert_released, load_golden
from helpers.tiny_backbones import BUILD, check_padding_is_not_seen, randomize

from mmposenc.attention import MultiheadAttention, PlainWindowAttention
from mmposenc.backbones import ViT, load_pretrained

SIZES = dict(patch_size=4, embed_dims=16, num_layers=4, num_heads=2)


def test_a_table_of_windows_is_never_resized():
    """Windows have the table's own size, those that are filled up at a border and those of a padded
    image too: resizing, which blocks on the whole grid need, changes nothing in them."""
    def model(resize):
        bias = dict(type='mmposenc.RelativePositionBias', resize=resize)
        return randomize(ViT(**SIZES, img_size=16, pool=None, window_size=4, mask_padding=True,
                             rel_pos_encoding=bias)).double().eval()
    images = torch.randn(2, 3, 40, 28, dtype=torch.float64)
    images[1, :, 24:] = images[1, :, :, 20:] = 0
    shapes = [(40, 28), (24, 20)]
    assert torch.equal(model(None)(images, shapes)[0], model('geometric')(images, shapes)[0])


def test_vitdets_arch():
    """Those of SAM are compared with timm's."""
    with torch.device('meta'):
        model = ViT('vitdet-base')
    assert model.pos_encodings.encodings(-1)[0].sides == (14, 14)
    for index, block in enumerate(model.blocks):
        is_global = index in (2, 5, 8, 11)
        assert isinstance(block.attn, PlainWindowAttention) != is_global
        assert len(block.attn.rel_pos_encoding.row_table) == (127 if is_global else 27)
    assert model.norm is None and model.out_indices == (11,)


PREFIX = dict(pool='cls', register_tokens=2)
ROTARY = dict(type='RotaryEmbedding', axes='yx', planes='halves', normalize='separate')
TABLE = dict(type='LearnedPositionEmbedding')
#: Each kind of encoding: absolute, conditional, by bucket, by distance, by rotation.
ENCODINGS = {
    'table': dict(pos_encoding=TABLE), 'PEG': dict(pos_encoding=[TABLE, dict(type='PEG')]),
    'iRPE': dict(rel_pos_encoding=dict(type='IRPE', rpe_on='qkv')),
    'PaPE': dict(rel_pos_encoding=dict(type='PaPE')),
    'ALiBi': dict(rel_pos_encoding=dict(type='ALiBi2D')),
    'rotary': dict(pos_encoding=TABLE, rel_pos_encoding=ROTARY),
    'rotary, grid': dict(rel_pos_encoding=ROTARY, window_positions='grid')}
#: Of sides that windows do not divide.
WINDOWS = {
    'size': dict(window_size=(2, 3)), 'count': dict(window_count=(2, 3)),
    'copied': dict(window_count=(2, 3), window_tokens='copied'),
    'releases': dict(window_size=(2, 3), mask_window_padding=False)}


def build(**options):
    return randomize(BUILD['vit'](**{**dict(global_blocks=(1,), out_indices=None, final_norm=True),
                                     **PREFIX, **options})).double().eval()


def test_rf_detrs_backbone(tmp_path):
    """Its numbers on a square and two rectangles, from the names of its files."""
    params, arrays = load_golden('rf_detr_windows')
    file = tmp_path / 'rf-detr.pth'
    torch.save({'model': {f'backbone.0.encoder.encoder.{name}': value
                          for name, value in params.items()}, 'args': Namespace(lr=1e-4)}, file)
    model = ViT(embed_dims=16, num_layers=3, num_heads=2, mlp_ratio=2, patch_size=4, img_size=24,
                pool=None, class_token=True, register_tokens=2, layer_scale_init_value=1.0,
                final_norm='every', out_indices=(0, 1, 2), window_count=2, window_tokens='copied',
                global_blocks=(1,), pos_encoding=dict(TABLE, interpolation='bicubic_antialias'))
    load_pretrained(model, file, prefix='backbone.0.encoder.encoder')
    model.eval()
    for number in range(3):
        for level, out in enumerate(model(arrays[f'x{number}'])):
            assert_released(out, arrays[f'y{number}.{level}'])


@pytest.mark.parametrize('of_release', [False, True])
def test_sam_3s_encoder_repeats_its_table(of_release):
    """On three sizes, from Hugging Face's names and those of the release, which have a row of the
    class token, the three projections in one, and angles."""
    params, arrays = load_golden('sam3')
    if of_release:
        names = {'embeddings.patch_embeddings.projection': 'patch_embed.proj', 'layers': 'blocks',
                 'embeddings.position_embeddings': 'pos_embed', 'attention.o_proj': 'attn.proj',
                 'layer_norm.': 'ln_pre.', 'layer_norm': 'norm'}
        file = {functools.reduce(lambda name, pair: name.replace(*pair), names.items(), key): value
                for key, value in params.items() if not re.search('[qkv]_proj', key)}
        file['pos_embed'] = torch.cat((torch.ones(1, 1, 16), file['pos_embed']), 1)
        file |= {f'blocks.{block}.attn.qkv.{end}': torch.cat([
            params[f'layers.{block}.attention.{part}_proj.{end}'] for part in 'qkv'])
            for block in range(3) for end in ('weight', 'bias')}
        file['blocks.0.attn.freqs_cis'] = torch.ones(16, 4, dtype=torch.complex64)
    prefix = 'detector.backbone.vision_backbone.trunk' if of_release else 'vision_encoder.backbone'
    # Hugging Face's norms have another epsilon than the release's.
    model = ViT('sam3', norm_eps=1e-6, embed_dims=16, num_layers=3, num_heads=2,
                mlp_hidden_dims=74, patch_size=2, img_size=8, window_size=4, global_blocks=(1, 2),
                rel_pos_encoding=dict(reference_grid=(4, 4)))
    load_pretrained(model, {'detector.x': torch.ones(1)} | {
        f'{prefix}.{key}': value for key, value in (file if of_release else params).items()})
    for number in range(3):
        assert_released(model.eval()(arrays[f'x{number}'])[0], arrays[f'y{number}'])


@pytest.mark.parametrize('tokens', ['shared', 'copied'])
@pytest.mark.parametrize('kind', ENCODINGS)
def test_one_window_is_the_whole_grid(kind, tokens):
    options = {key: value for key, value in ENCODINGS[kind].items() if key != 'window_positions'}
    whole, one = build(**options), build(**ENCODINGS[kind], window_count=1, window_tokens=tokens)
    one.load_state_dict(whole.state_dict())
    x = torch.randn(2, 3, 40, 56, dtype=torch.float64)
    assert torch.equal(one(x)[0], whole(x)[0])
    maps = [build(pool=None, class_token=True, **each)(x)[0] for each in (
        options, {**ENCODINGS[kind], 'window_size': (5, 7), 'window_tokens': 'shared'})]
    assert torch.equal(*maps)


def test_the_class_token_of_a_classifier_is_the_mean_of_its_copies():
    model, outs = build(window_count=2, window_tokens='copied', global_blocks=()), []
    model.blocks[-1].register_forward_hook(lambda block, args, out: outs.append(out))
    out, = model(torch.randn(2, 3, 32, 32, dtype=torch.float64))
    copies = outs[0][:, :12].unflatten(1, (4, 3))
    torch.testing.assert_close(out, model.norm(copies.mean(1)[:, 0]))
    assert not torch.allclose(out, model.norm(copies[:, 0, 0]))


SHARPER = dict(type='RotaryEmbedding', temperature='log', grid_shape=(2, 2))


@pytest.mark.parametrize('options', [
    dict(rel_pos_encoding=ROTARY), dict(rel_pos_encoding=SHARPER),
    dict(rel_pos_encoding=SHARPER, cosine=True),
    dict(rel_pos_encoding=[ROTARY, dict(type='ComRoPE', block_size=4)])], ids=str)
def test_rotary_positions_of_the_whole_grid(options):
    """Against attention to the whole grid with a mask of what the windows leave out."""
    whole = randomize(MultiheadAttention(24, 2, num_prefix_tokens=1, **options)).double()
    windows = PlainWindowAttention(24, 2, (2, 3), whole_positions=True, num_prefix_tokens=1,
                                   **options).double()
    windows.load_state_dict(whole.state_dict())
    x, grid = torch.randn(2, 36, 24, dtype=torch.float64), (5, 7)
    row, col = (part.flatten() for part in torch.meshgrid(
        torch.arange(5) // 2, torch.arange(7) // 3, indexing='ij'))
    number = row * 3 + col
    seen = torch.ones(36, 36, dtype=torch.bool)
    seen[1:, 1:] = number[:, None] == number
    expected = whole(x, grid, attn_mask=seen)
    torch.testing.assert_close(windows(x, grid)[:, 1:], expected[:, 1:])


def test_the_temperature_of_cosines_multiplies_their_scale():
    """By log n / log m of the n = 35 cells, m = 4 in training."""
    plain, sharper = (randomize(MultiheadAttention(8, 2, cosine=True, rel_pos_encoding=each))
                      for each in (dict(type='RotaryEmbedding'), SHARPER))
    x = torch.randn(1, 35, 8)
    with torch.no_grad():
        plain.cosine.logit_scale += math.log(math.log(35) / math.log(4))
        torch.testing.assert_close(sharper(x, (5, 7)), plain(x, (5, 7)))


@pytest.mark.parametrize('kind', ENCODINGS)
@pytest.mark.parametrize('windows', WINDOWS)
def test_padding_is_not_seen(windows, kind):
    """An image in a padded batch has what it has alone."""
    model = build(mask_padding=True, **WINDOWS[windows], **ENCODINGS[kind])
    check_padding_is_not_seen(model, [(40, 56), (24, 30), (5, 56)], (40, 56))
