"""A list of images of several sizes: each gives what it gives alone, and nothing is padded."""
import examples
import pytest
import torch
from helpers.tiny_backbones import BUILD, check_list, of_each, randomize

from mmposenc.engine.training.compiling import compile_regions

#: Pixels, at 8 a patch: odd sizes, one grid three times, less than a patch, one row, one column.
SIZES = [(24, 37), (30, 21), (5, 40), (23, 39), (40, 7), (2, 24, 37)]


def small(**options):
    return randomize(BUILD['vit'](**{**dict(img_size=40, out_indices=None, final_norm=True),
                                     **options}).double())


def images(sizes=SIZES):
    torch.manual_seed(3)
    return [torch.randn(*size[:-2], 3, *size[-2:], dtype=torch.float64) for size in sizes]


@pytest.mark.parametrize('name', examples.RELATIVE)
def test_relative_encodings(name):
    check_list(small(rel_pos_encoding=examples.small(name), register_tokens=1,
                     pool='cls' if len(name) % 2 else 'gap'), images())


@pytest.mark.parametrize('name', [name for name in examples.TOKEN_OPTIONS if 'random' not in name])
def test_token_encodings(name):
    check_list(small(pos_encoding=dict(examples.TOKEN_OPTIONS[name]), class_token=True, pool='gap',
                     rel_pos_encoding=dict(type='IRPE')).train('normed' not in name), images())


def test_dropout_draws_as_for_a_batch():
    """Also the rate of drop path is of images, not of the row."""
    model = small(drop_path_rate=0.5, drop_rate=0.2, attn_drop_rate=0.2, pos_encoding=dict(
        type='LearnedPositionEmbedding'))
    batch = torch.stack(images([(24, 37)] * 5))
    torch.manual_seed(0)
    expected = model(batch)[0]
    torch.manual_seed(0)
    torch.testing.assert_close(model(list(batch))[0], expected)


@pytest.mark.parametrize('aspect', [False, True])
@pytest.mark.parametrize('table', ['learned', 'factorized'])
def test_naflex(table, aspect):
    """timm's, which pads patches; random weights."""
    naflex = pytest.importorskip('timm.models.naflexvit')
    from timm.data.naflex_dataset import NaFlexCollator
    from timm.data.naflex_transforms import Patchify
    theirs = randomize(naflex.NaFlexVit(naflex.NaFlexVitCfg(
        patch_size=8, embed_dim=16, depth=4, num_heads=2, init_values=0.5, global_pool='avg',
        reg_tokens=2, fc_norm=True, pos_embed=table, pos_embed_grid_size=(4, 4),
        pos_embed_ar_preserving=aspect), num_classes=0))
    ours = small(img_size=32, pool='gap', final_norm='pooled', register_tokens=2, pos_encoding=(
        dict(type='LearnedPositionEmbedding', keep_aspect=aspect, interpolation='bicubic_antialias')
        if table == 'learned' else dict(type='FactorizedPositionEmbedding', coordinates=(
            'aspect' if aspect else 'fractional')))).float()
    own = {'patch_embed.projection.weight': theirs.embeds.proj.weight.view(
        16, 8, 8, 3).permute(0, 3, 1, 2), 'patch_embed.projection.bias': theirs.embeds.proj.bias,
        'register_tokens': theirs.embeds.reg_token,
        **{f'pos_encodings.{name}': getattr(theirs.embeds, name.split('.')[-1]).view_as(value)
           for name, value in ours.pos_encodings.named_parameters()}}
    ours.load_state_dict({**theirs.state_dict(), **own}, strict=False)
    batch = [each.float() for each in images([(24, 40), (32, 16), (8, 64), (32, 32), (21, 30)])]
    padded, _ = NaFlexCollator(24)([(Patchify(8)(image), 0) for image in batch])
    torch.testing.assert_close(ours(batch)[0], theirs(padded), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize('batch, message', [
    ([], 'x is an empty list'),
    ([torch.zeros(3, 8, 8), torch.zeros(1, 8, 8)], r'x\[1\] has shape \(1, 8, 8\); \(3, H, W\)'),
    ([torch.zeros(3, 8, 8), torch.zeros(3, 8).numpy()], r'x\[1\] is a ndarray; it must be'),
    ([torch.zeros(8, 8)], r'x\[0\] has shape \(8, 8\)'),
    ([torch.zeros(3, 0, 8)], 'at least one pixel'),
    ([torch.zeros(3, 8, 8), torch.zeros(3, 8, 8).half()], r'x\[1\] has dtype torch.float16, but'),
    ([torch.zeros(3, 8, 8), torch.zeros(3, 8, 8, device='meta')], r'x\[1\] has device meta, but')])
def test_wrong_lists(batch, message):
    with pytest.raises(ValueError, match=message):
        small()(batch)


def test_what_a_list_can_not_have():
    batch = images()
    with pytest.raises(ValueError, match='img_shapes is given, but x is a list'):
        small()(batch, [(8, 8)])
    for name in ('pvt', 'swin'):
        with pytest.raises(ValueError, match=r'x is a list of images \(pack=True\), which only'):
            BUILD[name]()(batch)
    with pytest.raises(ValueError, match=r'BatchNorm \(norm_act=True\).*mask_padding=True'):
        small(pos_encoding=dict(type='PEG', norm_act=True))(batch)
    with pytest.raises(ValueError, match='cannot be exported'):
        torch.export.export(small().eval(), (batch,), strict=False)


def test_compiled_blocks(fresh_compiler):
    """The graphs of one list serve all others."""
    model = small(drop_path_rate=0.2, pos_encoding=dict(type='PEG'),
                  rel_pos_encoding=dict(type='IRPE'))
    expected = of_each(model.eval(), images())
    made = []
    compile_regions(model, dynamic=True, backend=lambda graph, inputs: made.append(1) or graph)
    torch.testing.assert_close(of_each(model, images()), expected)
    counts = []
    for sizes in (SIZES, SIZES[:3], [(48, 16)] * 2 + [(32, 24), (16, 72)], [(64, 64)] * 7):
        model.train()(images(sizes))[0].sum().backward()
        counts.append(len(made))
    assert counts[1:] == counts[:1] * 3, counts
