"""The plain transformer in windows: SAM's image encoder and ViTDet, against timm's."""
# Before timm: it provides torchvision's operators where they are not compiled.
import mmposenc  # noqa: F401

# isort: split
import pytest
import timm
import torch
from timm.models import vision_transformer_sam
from torch import nn

from mmposenc.attention import MultiheadAttention, PlainWindowAttention
from mmposenc.backbones import ViT, load_pretrained
from mmposenc.checkpoint import convert
from mmposenc.lab.figures import record_attention

SIZES = dict(patch_size=4, embed_dims=16, num_layers=4, num_heads=2)
SAM = dict(**SIZES, img_size=28, pool=None, final_norm=False, window_size=3, global_blocks=(1, 3),
           mask_window_padding=False, norm_eps=1e-5, neck_channels=6,
           pos_encoding=dict(type='mmposenc.LearnedPositionEmbedding',
                             interpolation='bicubic_antialias'),
           rel_pos_encoding=dict(type='mmposenc.DecomposedRPE'))


def randomize(model, seed=0):
    """Numbers that show in the output: what starts at zero, or as one, proves nothing."""
    torch.manual_seed(seed)
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.2)
    return model.double().eval()


def timms(**options):
    return randomize(vision_transformer_sam.VisionTransformerSAM(**{**dict(
        img_size=28, patch_size=4, embed_dim=16, depth=4, num_heads=2, num_classes=0,
        use_rel_pos=True, window_size=3, global_attn_indexes=(1, 3), neck_chans=6), **options}))


def loaded(model, state):
    model = model.double().eval()
    load_pretrained(model, state)
    return model


def close(got, expected):
    got, expected = got.detach(), expected.detach()
    assert float((got - expected).abs().max()) <= 1e-10 * float(expected.abs().max())


def test_a_table_of_windows_is_never_resized():
    """Windows have the table's own size, those that are filled up at a border and those of a padded
    image too: resizing, which blocks on the whole grid need, changes nothing in them."""
    def model(resize):
        bias = dict(type='mmposenc.RelativePositionBias', resize=resize)
        return randomize(ViT(**SIZES, img_size=16, pool=None, window_size=4, mask_padding=True,
                             rel_pos_encoding=bias))
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


@pytest.mark.parametrize('size', [(28, 28), (32, 20), (12, 40), (44, 48)])
def test_equals_timms(size, monkeypatch):
    """Features, gradients of the image and of every weight, at the native size and at others.

    timm resizes the table in float32; what it calls is called in float64 here.
    """
    monkeypatch.setattr(
        vision_transformer_sam, 'resample_abs_pos_embed_nhwc',
        lambda table, grid: nn.functional.interpolate(
            table.permute(0, 3, 1, 2), grid, mode='bicubic', antialias=True).permute(0, 2, 3, 1))
    theirs = timms()
    ours = loaded(ViT(**SAM), theirs.state_dict())
    x = torch.randn(2, 3, *size, dtype=torch.float64)
    outs, grads = [], []
    for model in (theirs, ours):
        image = x.clone().requires_grad_()
        out = model.forward_features(image) if model is theirs else model(image)[0]
        weights = torch.linspace(-1, 1, out.numel(), dtype=out.dtype).view(out.shape).cos()
        (out * weights).sum().backward()
        outs.append(out)
        grads.append({'image': image.grad, **{
            name: parameter.grad for name, parameter in model.named_parameters()}})
    assert outs[0].shape == (2, 6, size[0] // 4, size[1] // 4)
    close(outs[1], outs[0])
    close(grads[1].pop('image'), grads[0].pop('image'))
    expected = convert(grads[0], 'sam')
    for name, grad in grads[1].items():
        close(grad, expected.pop(f'backbone.{name}'))
    assert not expected


@pytest.mark.parametrize('block', range(4))
def test_every_block_equals_timms(block):
    theirs = timms(neck_chans=None, num_classes=0)
    ours = loaded(ViT(**{**SAM, 'neck_channels': None, 'out_indices': (block,)}),
                  theirs.state_dict())
    x = torch.randn(1, 3, 28, 28, dtype=torch.float64)
    with torch.no_grad():
        expected = theirs.forward_intermediates(x, indices=[block], intermediates_only=True)[0]
        close(ours(x)[0], expected)


def test_timms_classifier():
    """Without a neck timm has a norm in its place, and a head."""
    theirs = timms(neck_chans=None, num_classes=5, use_abs_pos=False)
    state = convert(theirs.state_dict(), 'sam')
    ours = loaded(ViT(**{**SAM, 'neck_channels': None, 'pos_encoding': None, 'final_norm': True,
                         'norm_eps': 1e-6, 'pool': 'gap'}), state)
    for module in theirs.modules():
        if isinstance(module, nn.LayerNorm):
            module.eps = 1e-6
    x = torch.randn(2, 3, 28, 28, dtype=torch.float64)
    with torch.no_grad():
        pooled = ours(x)[0] @ state['head.fc.weight'].T + state['head.fc.bias']
        close(pooled, theirs(x))


SHAPES = [(28, 44), (13, 30), (9, 5)]


@pytest.mark.parametrize('mask_window_padding', [True, False])
@pytest.mark.parametrize('neck_channels', [None, 6])
def test_padding_is_no_part_of_an_image(mask_window_padding, neck_channels):
    """An image in a padded batch gives what it gives alone, and gradients stay within it."""
    model = randomize(ViT(**{**SAM, 'mask_window_padding': mask_window_padding,
                             'neck_channels': neck_channels, 'mask_padding': True,
                             'out_indices': (0, 3)}))
    x = torch.randn(3, 3, 28, 44, dtype=torch.float64)
    for image, (height, width) in enumerate(SHAPES):
        x[image, :, height:] = 1e3
        x[image, :, :, width:] = -1e3
    x.requires_grad_()
    outs = model(x, SHAPES)
    grad = torch.autograd.grad(sum(out.square().sum() for out in outs), x)[0]
    for image, (height, width) in enumerate(SHAPES):
        own = x[image:image + 1, :, :height, :width].detach().requires_grad_()
        alone = model(own)
        for out, expected in zip(outs, alone, strict=True):
            rows, cols = expected.shape[-2:]
            close(out[image:image + 1, :, :rows, :cols], expected)
            assert not out[image, :, rows:].any() and not out[image, :, :, cols:].any()
        expected = torch.autograd.grad(sum(out.square().sum() for out in alone), own)[0]
        close(grad[image:image + 1, :, :height, :width], expected)
        assert not grad[image, :, height:].any() and not grad[image, :, :, width:].any()


def test_masked_windows_end_at_the_map():
    """Against a loop over windows, each attended to as a map of its own."""
    torch.manual_seed(0)
    module = PlainWindowAttention(8, 2, (2, 3), mask_window_padding=True,
                                  rel_pos_encoding=dict(type='mmposenc.QueryRelative2D'))
    whole = MultiheadAttention(8, 2, grid_shape=(2, 3),
                               rel_pos_encoding=dict(type='mmposenc.QueryRelative2D'))
    whole.load_state_dict(module.state_dict())
    x = torch.randn(2, 5, 7, 8)
    got = module(x.flatten(1, 2), (5, 7)).unflatten(1, (5, 7))
    for top in range(0, 5, 2):
        for left in range(0, 7, 3):
            cells = x[:, top:top + 2, left:left + 3]
            hw = tuple(cells.shape[1:3])
            expected = whole(cells.flatten(1, 2), hw).unflatten(1, hw)
            torch.testing.assert_close(got[:, top:top + 2, left:left + 3], expected)


def test_queries_and_keys_of_other_tokens():
    """Encodings with ``apply_to='qk'`` go through windows too; weights are those of windows."""
    torch.manual_seed(0)
    module = PlainWindowAttention(8, 2, 2, mask_window_padding=True)
    x, other = torch.randn(2, 1, 16, 8)
    torch.testing.assert_close(module(x, (4, 4), x_qk=x), module(x, (4, 4)))
    out, weights = module(x, (4, 4), None, True, x_qk=other)
    assert not torch.allclose(out, module(x, (4, 4))) and weights.shape == (4, 2, 4, 4)
    q, k = torch.nn.functional.linear(other, module.qkv.weight, module.qkv.bias)[0].chunk(3, -1)[:2]
    first = [0, 1, 4, 5]  # the window in the corner
    logits = q[first, :4] @ k[first, :4].T * 0.5
    torch.testing.assert_close(weights[0, 0], logits.softmax(-1))


@pytest.mark.parametrize(('name', 'table', 'global_blocks'), [
    ('sam-base', 64, (2, 5, 8, 11)), ('sam-large', 64, (5, 11, 17, 23)),
    ('sam-huge', 64, (7, 15, 23, 31)), ('vitdet-base', 14, (2, 5, 8, 11))])
def test_archs(name, table, global_blocks):
    with torch.device('meta'):
        model = ViT(name)
    assert model.pos_encodings.encodings(-1)[0].grid_shape == (table, table)
    for index, block in enumerate(model.blocks):
        is_global = index in global_blocks
        assert isinstance(block.attn, PlainWindowAttention) != is_global
        assert len(block.attn.rel_pos_encoding.row_table) == (127 if is_global else 27)
    assert model.norm is None and model.out_indices == (len(model.blocks) - 1,)


@pytest.mark.parametrize('size', ['base', 'large', 'huge'])
def test_parameters_of_sams_encoder(size):
    with torch.device('meta'):
        ours = ViT(f'sam-{size}', neck_channels=256)
        theirs = timm.create_model(f'samvit_{size}_patch16')
    counts = [sum(p.numel() for p in model.parameters()) for model in (ours, theirs)]
    assert counts[0] == counts[1] and (size != 'base' or counts[0] == 89_670_912)


def test_explicit_arguments_win():
    with torch.device('meta'):
        model = ViT('sam-base', window_size=None, num_layers=12, img_size=256)
    assert all(type(block.attn) is MultiheadAttention for block in model.blocks)
    assert len(model.blocks[0].attn.rel_pos_encoding.row_table) == 31


@pytest.mark.parametrize(('options', 'message'), [
    (dict(global_blocks=(4,)), r'global_blocks=\(4,\) must be blocks from 0 to 3'),
    (dict(window_size=(3, 0)), r'window_size=\(3, 0\) must be at least \(1, 1\)'),
    (dict(class_token=True), r'window_size=3 with 1 class tokens'),
    (dict(register_tokens=4), r'window_size=3 with 4 class tokens'),
    (dict(conv_projection=(0, 1)), r'conv_projection=\(0, 1\) must be among '
                                   r'global_blocks=\(1, 3\)'),
    (dict(neck_channels=0), r'neck_channels=0 must be at least 1'),
    (dict(out_indices=(2,)), r'neck_channels=6 with out_indices=\(2,\).*put 3 into'),
    (dict(pool='gap', final_norm=True), r'neck_channels=6 with out_indices=None'),
])
def test_bad_options(options, message):
    with pytest.raises(ValueError, match=message):
        ViT(**{**SAM, **options})


def test_figures_show_the_window_that_holds_a_place():
    """10 rows of 11 cells in windows of 3: row 7, column 4 lies in window (2, 1) at (1, 1)."""
    model = randomize(ViT(**SAM))
    with record_attention(model, (0.7, 0.4)) as records, torch.no_grad():
        model(torch.randn(1, 3, 40, 44, dtype=torch.float64))
    assert [record.window for record in records] == [(2, 1), None, (2, 1), None]
    assert records[0].cell == (1, 1) and records[0].hw_shape == records[0].key_shape == (3, 3)
    assert records[1].cell == (7, 4) and records[1].hw_shape == (10, 11)
    assert records[0].terms is not None and records[0].weights.sum((1, 2)) == pytest.approx(1.0)


def test_bad_masks():
    module = PlainWindowAttention(8, 2, 2)
    x = torch.randn(1, 6, 8)
    with pytest.raises(ValueError, match=r'key_padding_mask has shape \(1, 5\)'):
        module(x, (2, 3), torch.zeros(1, 5, dtype=torch.bool))
    with pytest.raises(ValueError, match=r'num_prefix_tokens=1 with window_size=2 must be 0'):
        PlainWindowAttention(8, 2, 2, num_prefix_tokens=1)
