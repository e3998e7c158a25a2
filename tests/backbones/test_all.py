"""What every backbone must do, whatever it is."""
import pytest
import torch

from mmposenc.backbones import PVT, DeiT, Swin
from mmposenc.functional.image_sizes import set_img_shapes

PEG = dict(type='PEG')
BUILD = {
    'deit': lambda **o: DeiT(embed_dims=24, num_layers=2, num_heads=3, patch_size=8, pool=None,
                             **o),
    'pvt': lambda **o: PVT(embed_dims=(8, 16), num_layers=(1, 2), num_heads=(1, 2),
                           sr_ratios=(4, 2), mlp_ratios=(2, 2), patch_sizes=(4, 2),
                           out_indices=(0, 1), **o),
    'swin': lambda **o: Swin(embed_dims=12, num_layers=(1, 2), num_heads=(2, 3), window_size=4,
                             **o)}


def randomize(module, std=0.1):
    torch.manual_seed(0)
    for parameter in module.parameters():
        torch.nn.init.normal_(parameter, std=std)
    return module.eval()


@pytest.mark.parametrize('name', BUILD)
@pytest.mark.parametrize('dtype', [torch.bfloat16, torch.float16])
def test_autocast_stays_close(name, dtype):
    model = randomize(BUILD[name](pos_encoding=PEG, rel_pos_encoding=dict(type='IRPE',
                                                                          rpe_on='qkv')))
    x = torch.randn(2, 3, 64, 96)
    expected = model(x)
    with torch.autocast('cpu', dtype):
        outs = model.train()(x) if name == 'deit' else model(x)
    sum(out.float().square().mean() for out in outs).backward()
    for out, value in zip(outs, expected, strict=True):
        assert out.isfinite().all()
        torch.testing.assert_close(out.float(), value, atol=0.05 * value.abs().max().item(), rtol=0)
    assert all(p.grad.isfinite().all() for p in model.parameters() if p.grad is not None)


@pytest.mark.parametrize('name', BUILD)
def test_sizes_noted_on_a_batch_are_used(name):
    model = randomize(BUILD[name](mask_padding=True, pos_encoding=PEG)).double()
    sizes = [(40, 64), (64, 33)]
    x = torch.randn(2, 3, 64, 64, dtype=torch.float64)
    for out, noted in zip(model(x, sizes), model(set_img_shapes(x.clone(), sizes)), strict=True):
        torch.testing.assert_close(out, noted, rtol=0, atol=0)
    assert not torch.allclose(model(x)[0], model(x, sizes)[0])


@pytest.mark.parametrize('name', BUILD)
@pytest.mark.parametrize('padding', ['zeros', 'none'])
def test_maps_have_the_size_of_the_batch(name, padding):
    """Whatever its images fill, and where encodings take rows and columns away too."""
    encoding = dict(type='PEG', padding=padding)
    model = randomize(BUILD[name](mask_padding=True, pos_encoding=encoding)).double()
    x = torch.randn(1, 3, 96, 128, dtype=torch.float64)
    whole = model(x, [(96, 128)])
    for size in ((72, 80), (96, 128), (80, 128)):
        for out, full in zip(model(x, [size]), whole, strict=True):
            assert out.shape == full.shape
        own = model(x[..., :size[0], :size[1]], [size])
        for out, alone in zip(model(x, [size]), own, strict=True):
            rows, cols = alone.shape[-2:]
            torch.testing.assert_close(out[..., :rows, :cols], alone, rtol=0, atol=0)
            assert not out[..., rows:, :].any() and not out[..., cols:].any()


@pytest.mark.parametrize('name', BUILD)
def test_nothing_in_the_state_depends_on_the_last_image(name):
    model = randomize(BUILD[name](pos_encoding=[PEG, dict(type='LearnedPositionEmbedding')],
                                  rel_pos_encoding=dict(type='IRPE', rpe_on='k')))
    before = {key: value.clone() for key, value in model.state_dict().items()}
    x = torch.randn(1, 3, 64, 64)
    first = model(x)
    model(torch.randn(2, 3, 96, 40))
    for a, b in zip(first, model(x), strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=0)
    assert before.keys() == model.state_dict().keys()
    for key, value in model.state_dict().items():
        assert torch.equal(value, before[key])


@pytest.mark.parametrize('name', BUILD)
def test_works_without_gradients_and_in_float64(name):
    model = randomize(BUILD[name](pos_encoding=PEG)).double()
    x = torch.randn(1, 3, 64, 96, dtype=torch.float64)
    with torch.inference_mode():
        outs = model(x)
    for out, value in zip(outs, model(x), strict=True):
        torch.testing.assert_close(out, value)
        assert out.dtype == torch.float64


@pytest.mark.parametrize('name', BUILD)
def test_form_reaches_every_attention(name):
    """The same maps and gradients by the definition and in pieces; a wrong name at once."""
    x = torch.randn(2, 3, 64, 96)
    found = []
    for form in ('definition', 'pieces'):
        model = randomize(BUILD[name](rel_pos_encoding=dict(type='IRPE', rpe_on='qkv'), form=form))
        forms = [module.form for module in model.modules() if hasattr(module, 'form')]
        assert forms and set(forms) == {form}
        outs = model(x)
        sum(out.square().mean() for out in outs).backward()
        found.append([*outs, *(p.grad for p in model.parameters() if p.grad is not None)])
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(one, other, atol=1e-4 * other.abs().max().item(), rtol=1e-4)
    with pytest.raises(ValueError, match="form='fast' must be one of auto, definition, fused"):
        BUILD[name](form='fast')
