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
