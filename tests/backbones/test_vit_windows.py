"""The plain transformer in windows, as SAM's image encoder, ViTDet and RF-DETR have them."""
import itertools
import math
from argparse import Namespace

import pytest
import torch
from helpers.golden_files import assert_released, load_golden
from helpers.tiny_backbones import BUILD, check_list, check_padding_is_not_seen, randomize

from mmposenc.attention import MultiheadAttention, PlainWindowAttention
from mmposenc.backbones import ViT, load_pretrained

SIZES = dict(patch_size=4, embed_dims=16, num_layers=4, num_heads=2)
SAM = dict(**SIZES, img_size=28, pool=None, final_norm=False, window_size=3, global_blocks=(1, 3),
           mask_window_padding=False, norm_eps=1e-5, neck_channels=6,
           pos_encoding=dict(type='mmposenc.LearnedPositionEmbedding',
                             interpolation='bicubic_antialias'),
           rel_pos_encoding=dict(type='mmposenc.DecomposedRPE'))


def test_a_table_of_windows_is_never_resized():
    """Windows have the table's own size, those that are filled up at a border and those of a padded
    image too: resizing, which blocks on the whole grid need, changes nothing in them."""
    def model(resize):
        bias = dict(type='mmposenc.RelativePositionBias', resize=resize)
        return randomize(ViT(**SIZES, img_size=16, pool=None, window_size=4, mask_padding=True,
                             rel_pos_encoding=bias)).double().eval()
    plain, resizing = model(None), model('geometric')
    images = torch.randn(2, 3, 40, 28, dtype=torch.float64)
    images[1, :, 24:] = images[1, :, :, 20:] = 0
    shapes = [(40, 28), (24, 20)]
    assert torch.equal(plain(images, shapes)[0], resizing(images, shapes)[0])
    bias = resizing.blocks[0].attn.rel_pos_encoding
    i, j = (1, 2), (3, 0)  # cells of a window of 4 x 4, whose table has 7 x 7 offsets
    row = (i[0] - j[0] + 3) * 7 + i[1] - j[1] + 3
    assert torch.equal(bias.logits(torch.zeros(1, 2, 16, 8).double(), torch.zeros(1, 2, 16, 8).
                                   double(), (4, 4))[0, :, 1 * 4 + 2, 3 * 4 + 0],
                       bias.relative_position_bias_table[row])


def test_vitdets_arch():
    """Those of SAM are compared with timm's."""
    with torch.device('meta'):
        model = ViT('vitdet-base')
    assert model.pos_encodings.encodings(-1)[0].grid_shape == (14, 14)
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


@pytest.mark.parametrize('copied', [False, True])
@pytest.mark.parametrize('counts', [(2, 2), (2, 3), (4, 1)])
def test_each_window_is_an_image_with_the_prefix_tokens(counts, copied):
    """Against attention without windows of the cells of each, of which the last are fewer or
    none."""
    options = dict(rel_pos_encoding=dict(type='IRPE', rpe_on='qkv'))
    inside = randomize(MultiheadAttention(24, 2, num_prefix_tokens=2, **options)).double()
    number, (height, width) = counts[0] * counts[1], (5, 4)
    total = 2 * number if copied else 2
    attention = PlainWindowAttention(
        24, 2, window_count=counts, copied=copied, mask_window_padding=True,
        num_prefix_tokens=total, grid_shape=(height, width), **options).double()
    attention.load_state_dict(inside.state_dict())
    x = torch.randn(3, total + height * width, 24, dtype=torch.float64)
    cells = x[:, total:].view(3, height, width, 24)
    rows, cols = -(-height // counts[0]), -(-width // counts[1])
    out, prefixes = torch.zeros_like(cells), {}
    for window in range(number):
        top, left = window // counts[1] * rows, window % counts[1] * cols
        part = cells[:, top:top + rows, left:left + cols]
        prefix = x[:, 2 * window:2 * window + 2] if copied else x[:, :2]
        if not part.numel():
            continue
        each = inside(torch.cat((prefix, part.flatten(1, 2)), 1), part.shape[1:3])
        prefixes[window] = each[:, :2]
        out[:, top:top + rows, left:left + cols] = each[:, 2:].view_as(part)
    got = attention(x, (height, width))
    torch.testing.assert_close(got[:, total:], out.flatten(1, 2))
    if not copied:
        torch.testing.assert_close(got[:, :total], torch.stack([*prefixes.values()]).mean(0))
        return
    for window, prefix in prefixes.items():
        torch.testing.assert_close(got[:, 2 * window:2 * window + 2], prefix)


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


def test_temperature_of_cosines_in_windows_by_loops():
    """Cosine attention of Swin V2, cos(q, k) * scale, with rotary positions of the whole grid and
    the temperature log n / log m of its n cells, m in training."""
    attention = randomize(PlainWindowAttention(
        8, 2, (2, 2), whole_positions=True, cosine=True, rel_pos_encoding=SHARPER)).double()
    x = torch.randn(1, 12, 8, dtype=torch.float64)
    q, k, v = attention.qkv(x)[0].detach().unflatten(1, (3, 2, 4)).unbind(1)  # cells, heads, dims
    scales = attention.cosine.logit_scale.detach().clamp(max=math.log(100)).exp().flatten()
    expected = torch.zeros(12, 2, 4, dtype=torch.float64)

    def turned(vector, row, col):
        """The first plane by the column, the second by the row: each with frequency 1."""
        turns = [complex(math.cos(angle), math.sin(angle)) for angle in (col, row)]
        return [complex(*vector[2 * i:2 * i + 2].tolist()) * turn for i, turn in enumerate(turns)]

    for head, (row, col) in itertools.product(range(2), itertools.product(range(3), range(4))):
        logits, values = [], []
        mine = q[row * 4 + col, head]
        for other_row, other_col in itertools.product(range(3), range(4)):
            if (row // 2, col // 2) != (other_row // 2, other_col // 2):
                continue
            other = k[other_row * 4 + other_col, head]
            product = sum((a * b.conjugate()).real for a, b in zip(
                turned(mine, row, col), turned(other, other_row, other_col), strict=True))
            cosine = product / (mine.norm() * other.norm())
            logits.append(cosine * scales[head] * math.log(12) / math.log(4))
            values.append(v[other_row * 4 + other_col, head])
        expected[row * 4 + col, head] = torch.stack(logits).softmax(0) @ torch.stack(values)
    torch.testing.assert_close(attention(x, (3, 4))[0], attention.proj(expected.flatten(1)))


@pytest.mark.parametrize('kind', ENCODINGS)
@pytest.mark.parametrize('windows', WINDOWS)
def test_padding_and_lists(windows, kind):
    """An image in a padded batch or in a list has what it has alone; with_cp changes nothing."""
    model = build(mask_padding=True, **WINDOWS[windows], **ENCODINGS[kind])
    check_padding_is_not_seen(model, [(40, 56), (24, 30), (5, 56)], (40, 56))
    check_list(model, [torch.randn(3, *size, dtype=torch.float64)
                       for size in ((40, 56), (24, 30), (40, 56))])
    again = build(with_cp=True, **WINDOWS[windows], **ENCODINGS[kind]).train()
    images = torch.randn(2, 3, 40, 56, dtype=torch.float64)
    results = [torch.autograd.grad(each(images)[0].square().sum(), list(each.parameters()))
               for each in (model.train(), again)]
    torch.testing.assert_close(*results)


@pytest.mark.parametrize('windows', WINDOWS)
def test_on_the_meta_device(windows):
    with torch.device('meta'):
        model = BUILD['vit'](**PREFIX, **WINDOWS[windows])
        assert [out.shape for out in model(torch.empty(2, 3, 40, 56))] == [(2, 16, 5, 7)] * 2
