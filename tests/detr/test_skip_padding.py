"""Layers that go through valid tokens alone give what they give with the padding."""
import copy

import pytest
import torch
from helpers.tiny_detr import ENCODERS, IRPE, build, detr

from mmposenc.functional.masking import extents_to_mask

HW = (4, 5)
CASES = {**ENCODERS,
         'irpe of all layers': (dict(rel_pos_sharing='all'), dict(rel_pos_encoding=IRPE)),
         'pape': (dict(), dict(rel_pos_encoding=dict(type='mmposenc.PaPE', num_parabolas=3))),
         'table by sequence': (dict(), dict(rel_pos_encoding=dict(
             type='mmposenc.QueryAbsolute1D', max_tokens=20)))}


def padding(*extents):
    return extents_to_mask(list(extents), HW, torch.device('cpu')).flatten(1)


def encoder_of(encoder: dict, attn: dict, skip: bool | None):
    return build(detr(encoder={**encoder, 'skip_padding': skip}, attn=attn)).encoder


def run(encoder, mask, seed=0, **kwargs):
    """Memory of random tokens, and all gradients of its valid part."""
    generator = torch.Generator().manual_seed(seed)
    tokens, pos, weight = (torch.randn(len(mask), HW[0] * HW[1], 16, generator=generator)
                           for _ in range(3))
    tokens.requires_grad_()
    memory = encoder(tokens, pos, mask, spatial_shapes=HW, **kwargs)
    (memory * weight)[~mask].sum().backward()
    return memory, {'tokens': tokens.grad, **{n: p.grad for n, p in encoder.named_parameters()}}


@pytest.mark.parametrize('train', [
    pytest.param(False, id='eval', marks=pytest.mark.slow), pytest.param(True, id='train')])
@pytest.mark.parametrize('case', CASES)
def test_memory_and_gradients(case: str, train: bool) -> None:
    mask = padding((4, 5), (2, 3), (4, 1))
    encoder, attn = copy.deepcopy(CASES[case])
    (whole, grads), (skipped, other) = (
        run(encoder_of({**encoder, 'num_cp': num_cp}, attn, skip).train(train), mask)
        for skip, num_cp in ((False, -1), (True, 2 if train else -1)))  # recomputed too
    torch.testing.assert_close(skipped[~mask], whole[~mask], atol=2e-5, rtol=1e-4)
    assert whole[mask].any() and not skipped[mask].any()
    assert grads.keys() == other.keys()
    for name, grad in grads.items():
        torch.testing.assert_close(other[name], grad, atol=2e-4, rtol=1e-3,
                                   msg=lambda text, name=name: f'{name}: {text}')


@pytest.mark.parametrize('relative', [False, True])
def test_padding_of_any_shape(relative: bool) -> None:
    """Without a relative encoding any tokens can be left out; a relative one needs rectangles."""
    mask = padding((4, 5), (3, 3))
    mask[1, 6] = True
    attn = dict(rel_pos_encoding=IRPE) if relative else dict()
    (whole, _), (skipped, _) = (run(encoder_of(dict(), attn, skip).eval(), mask)
                                for skip in (False, True))
    torch.testing.assert_close(skipped[~mask], whole[~mask], atol=2e-5, rtol=1e-4)
    assert skipped[mask].any() == relative


def test_an_image_of_padding_alone_and_a_batch_of_it() -> None:
    encoder = encoder_of(dict(), dict(rel_pos_encoding=IRPE), True).eval()
    mask = padding((0, 0), (3, 2))
    memory, grads = run(encoder, mask)
    assert memory[0].abs().max() == 0 and memory[1][~mask[1]].all()
    assert all(grad.isfinite().all() for grad in grads.values())
    assert run(encoder, padding((0, 0)))[0].isfinite().all()


def test_a_little_padding_is_not_worth_it() -> None:
    encoder = encoder_of(dict(), dict(), None).eval()
    some, little = padding((4, 5), (4, 4)), torch.zeros(2, 20, dtype=torch.bool)
    little[0, -1] = True
    assert not run(encoder, some)[0][some].any()
    assert run(encoder, little)[0][little].all()
    # weights are those of all tokens
    memory, weights = encoder(torch.ones(2, 20, 16), None, some, need_weights=True)
    assert weights[0].shape == (2, 2, 20, 20) and memory[some].any()


def test_one_position_for_all_images() -> None:
    encoder, mask = encoder_of(dict(), dict(), True).eval(), padding((4, 5), (2, 3))
    tokens, pos = torch.randn(2, 20, 16), torch.randn(1, 20, 16)
    torch.testing.assert_close(encoder(tokens, pos, mask),
                               encoder(tokens, pos.repeat(2, 1, 1), mask))


@pytest.mark.parametrize('mask', [torch.zeros(2, 19, dtype=torch.bool), torch.zeros(2, 20)])
def test_bad_masks(mask) -> None:
    for skip in (False, True):
        encoder = encoder_of(dict(), dict(), skip)
        with pytest.raises(ValueError, match=r'key_padding_mask has.*\(2, 20\) and bool are req'):
            encoder(torch.ones(2, 20, 16), None, mask, spatial_shapes=HW)
