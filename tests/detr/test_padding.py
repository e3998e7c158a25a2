"""Padding: what lies there, and how much of it, changes nothing; layers that go through valid
tokens alone give what they give with it."""
import copy

import pytest
import torch
from helpers import tiny_detr as tiny
from helpers.tiny_detr import (
    ENCODERS,
    IRPE,
    PEG,
    build,
    deformable,
    detr,
    images,
    predict,
    total_loss,
)

from mmposenc.functional.extents import extents_to_mask


def encode(model, features, sizes, full, **inputs_too):
    """Memory of maps, with images of ``sizes`` pixels in a batch of ``full``."""
    from mmdet.structures import DetDataSample
    samples = [DetDataSample(metainfo=dict(img_shape=size, batch_input_shape=full))
               for size in sizes]
    inputs, _ = model.pre_transformer(features, samples)
    return model.forward_encoder(**inputs, **inputs_too)['memory']


def maps(grids, channels=16, batch=1, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return tuple(torch.randn(batch, channels, *grid, generator=generator) for grid in grids)


def padded(own, grids, fill):
    """Maps of one image in the corner of larger ones, with another image that fills them."""
    out = []
    for x, grid in zip(own, grids, strict=True):
        batch = torch.full((2, x.shape[1], *grid), fill)
        batch[0, :, :x.shape[2], :x.shape[3]] = x[0]
        batch[1] = torch.randn(x.shape[1], *grid, generator=torch.Generator().manual_seed(9))
        out.append(batch)
    return tuple(out)


def valid_tokens(memory, grids, own):
    """The image's own tokens of (L, C), level by level."""
    parts = memory.split([h * w for h, w in grids])
    return torch.cat([part.unflatten(0, grid)[:h, :w].flatten(0, 1)
                      for part, grid, (h, w) in zip(parts, grids, own, strict=True)])


ENCODED = {
    **{f'detr, {case}': detr(encoder=encoder, attn=attn)
       for case, (encoder, attn) in ENCODERS.items()},
    'conditional': tiny.conditional(attn=ENCODERS['irpe qkv, chunked'][1]),
    'dab': tiny.dab(attn=dict(rel_pos_encoding=IRPE),
                    encoder=dict(encoder_pos='sine', pos_encoding=dict(type='mmposenc.PEG'))),
    'dab, on qk': tiny.dab(encoder=ENCODERS['peg on qk'][0]),
    'dab, all tokens': tiny.dab(encoder=dict(ENCODERS['peg on qk'][0], skip_padding=False)),
    'deformable': deformable(encoder=dict(pos_encoding=PEG, positions=(-1, 0), encoder_pos=None)),
    'deformable, levels': deformable(levels=3, encoder=dict(
        pos_encoding=PEG, positions=(-1, 0), encoder_pos='learned')),
    'deformable, shared': deformable(levels=3, encoder=dict(
        pos_encoding=PEG, pos_encoding_shared=True, encoder_pos='sine')),
    'grounding': tiny.grounding(levels=3, encoder=dict(pos_encoding=PEG, positions=(-1, 0, 1)))}


# BatchNorm, while training, takes its statistics from the whole batch.
@pytest.mark.parametrize('case, train', [(case, train) for case in ENCODED for train in (
    False, True) if not (train and 'norm_act' in str(ENCODED[case]['encoder']))])
def test_memory_of_an_image_does_not_depend_on_its_batch(case: str, train: bool) -> None:
    """Whatever the batch is filled up with."""
    model = build(ENCODED[case]).train(train)
    channels, levels = model.encoder.embed_dims, model.encoder.num_levels
    assert len(model.encoder.pos_encodings) == (1 if 'shared' in case else levels)
    text = {'text_dict': tiny.words} if case == 'grounding' else {}
    strides, image = [32] if levels == 1 else [16, 32, 64], (100, 150)
    for full in ((125, 224), (161, 230)):
        own, grids = ([tuple(-(-side // s) for side in size) for s in strides]
                      for size in (image, full))
        alone = encode(model, maps(own, channels), [image], image,
                       **{key: each(1) for key, each in text.items()})[0]
        for fill in (50.0, -3e3):
            memory = encode(model, padded(maps(own, channels), grids, fill), [image, full], full,
                            **{key: each() for key, each in text.items()})[0]
            torch.testing.assert_close(valid_tokens(memory, grids, own), alone, atol=2e-5,
                                       rtol=1e-4)


POOL = dict(type='mmposenc.ContextPool', ratio=0.5)
DETECTORS = {
    'detr': detr(encoder=dict(encoder_pos=None, pos_encoding=PEG),
                 attn=dict(rel_pos_encoding=IRPE)),
    'detr, several': detr(
        encoder=dict(pos_encoding=[PEG, POOL, dict(type='mmposenc.PEG')], positions=(-1, 0, 1)),
        attn=dict(rel_pos_encoding={**IRPE, 'rpe_on': 'qkv'}), decoder=dict(key_pos='learned')),
    'detr, decoder without positions': detr(encoder=dict(encoder_pos=None),
                                            decoder=dict(key_pos=None)),
    'detr, biases by boxes': detr(decoder=dict(
        num_layers=2, relation=dict(type='mmposenc.PositionRelation'),
        box_bias=dict(type='mmposenc.BoxRPB', hidden_dims=8))),
    'conditional': tiny.conditional(encoder=dict(encoder_pos=None, pos_encoding=PEG),
                                    attn=dict(rel_pos_encoding=IRPE)),
    'dab': tiny.dab(encoder=dict(encoder_pos='learned', pos_encoding=PEG),
                    attn=dict(rel_pos_encoding=IRPE), decoder=dict(key_pos='learned')),
    'multi, refine': deformable(levels=3, with_box_refine=True, encoder=dict(
        encoder_pos='learned', pos_encoding=[PEG, POOL])),
    'multi, on qk, shared': deformable(levels=2, encoder=dict(
        pos_encoding=dict(type='mmposenc.PEG', apply_to='qk'), pos_encoding_shared=True)),
    # The neck's GroupNorm sees no padding either, and its fourth level is made of the third.
    'multi, GroupNorm': deformable(levels=4, encoder=dict(pos_encoding=PEG), neck=dict(
        type='mmposenc.ChannelMapper', norm_cfg=dict(type='GN', num_groups=4))),
    'multi, STA': {**deformable(levels=3, backbone=dict(
        type='mmposenc.ViT', embed_dims=16, num_layers=2, num_heads=2, patch_size=16, img_size=64,
        out_indices=(1,), with_image=True, mask_padding=True)), 'neck': dict(
            type='mmposenc.STA', in_channels=16, out_channels=16)},
    'multi, hybrid encoder': {**deformable(levels=2), 'neck': dict(
        type='mmposenc.HybridEncoder', in_channels=[16, 16], out_channels=16, encoder=dict(
            pos_encoding=dict(type='mmposenc.PEG')))}}
TWO_STAGES = {
    'two stages': deformable(levels=2, dims=256, num_queries=12, with_box_refine=True,
                             as_two_stage=True, encoder=dict(pos_encoding=PEG)),
    'dino': tiny.dino(num_queries=12, encoder=dict(encoder_pos='learned', pos_encoding=PEG)),
    'ddq': tiny.ddq(num_queries=9, encoder=dict(pos_encoding=PEG, positions=(-1, 0)))}
ALL = {**DETECTORS, **TWO_STAGES}
SHORT = 'detr', 'multi, hybrid encoder', 'dab', 'detr, biases by boxes'


@pytest.mark.parametrize('case', tiny.short([*DETECTORS, 'two stages'], *SHORT))
def test_boxes_of_an_image_do_not_depend_on_its_batch(case: str) -> None:
    model = build(ALL[case])
    small, sizes = (45, 61), ((45, 61), (91, 140))
    alone = predict(model, images((small,)))[0]
    together = predict(model, images(sizes))[0]
    assert len(alone.scores) == 5
    torch.testing.assert_close(together.scores, alone.scores, atol=2e-5, rtol=1e-4)
    torch.testing.assert_close(together.bboxes, alone.bboxes, atol=2e-3, rtol=1e-4)
    assert torch.equal(alone.labels, together.labels)
    # and it does see the image
    other = predict(model, images((small,), seed=5))[0]
    assert (other.bboxes - alone.bboxes).abs().max() > 0.01


@pytest.mark.parametrize('case', tiny.short(TWO_STAGES, 'dino'))
def test_proposals_of_an_image_do_not_depend_on_its_batch(case: str) -> None:
    """The decoders of DINO and DDQ embed them in units of the padded batch, as their releases do:
    from there on, boxes depend on it."""
    found = []
    model = build(TWO_STAGES[case])
    decode = model.forward_decoder
    model.forward_decoder = lambda **kwargs: found.append(kwargs) or decode(**kwargs)
    predict(model, images(((45, 61),)))
    predict(model, images(((45, 61), (91, 140))))
    for name in ('query', 'reference_points'):
        torch.testing.assert_close(found[1][name][0], found[0][name][0], atol=2e-5, rtol=1e-4)


@pytest.mark.parametrize('mixed', [False, True])
@pytest.mark.parametrize('case', tiny.short(ALL, *SHORT, 'ddq', 'multi, on qk, shared'))
def test_a_training_step_reaches_every_parameter(case: str, mixed: bool) -> None:
    """The loss is finite, in mixed precision too, where logits of padding are low. A new model has
    all names of the weights. No hook is seen that another thread would run, too."""
    model, seen = build(ALL[case]).train(), []
    names = list(model.state_dict())
    if case in TWO_STAGES:
        model.memory_trans_norm.register_forward_hook(lambda *_: seen.append(
            [dict(module._forward_hooks) for module in model.modules()]))
    hooks = [dict(module._forward_hooks) for module in model.modules()]
    with torch.autocast('cpu', torch.bfloat16, enabled=mixed):
        loss = total_loss(model, images(((45, 61), (91, 140))))
    loss.backward()
    assert loss.isfinite()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None and parameter.grad.isfinite().all(), name
        assert 'encoding' not in name or parameter.grad.any(), name
    seen.append([module._forward_hooks for module in model.modules()])
    assert all(hooks == each for each in seen) and len(seen) == 1 + (case in TWO_STAGES)
    assert names == list(model.state_dict())


def test_neck_without_sizes_is_mmdets() -> None:
    from mmdet.models.necks import ChannelMapper as Theirs

    from mmposenc.openmmlab.mmdet.detr.neck import ChannelMapper
    args = dict(in_channels=[3, 5], out_channels=8, num_outs=4,
                norm_cfg=dict(type='GN', num_groups=2))
    ours, theirs = ChannelMapper(**args), Theirs(**args)
    ours.load_state_dict(theirs.state_dict())
    maps = (torch.randn(2, 3, 8, 9), torch.randn(2, 5, 4, 5))
    for sizes in ((), ([(60, 72), (64, 40)], (64, 72)), ([(64, 72)] * 2, (64, 72))):
        for index, (a, b) in enumerate(zip(ours(maps, *sizes), theirs(maps), strict=True)):
            same = torch.allclose(a, b, atol=1e-5)
            assert same == (not sizes or sizes[0][0] == (64, 72)), (sizes, index)


HW = (4, 5)
LAYERS = {**ENCODERS,
         'irpe of all layers': (dict(rel_pos_sharing='all'), dict(rel_pos_encoding=IRPE)),
         'pape': (dict(), dict(rel_pos_encoding=dict(type='mmposenc.PaPE', num_parabolas=3))),
         'table by sequence': (dict(), dict(rel_pos_encoding=dict(
             type='mmposenc.QueryAbsolute1D', max_tokens=20)))}


def padding_of(*extents):
    return extents_to_mask(list(extents), HW, torch.device('cpu')).cells.flatten(1)


def encoder_of(encoder: dict, attn: dict, skip: bool | None):
    return build(detr(encoder={**encoder, 'skip_padding': skip}, attn=attn)).encoder


def run_layers(encoder, mask, seed=0, **kwargs):
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
@pytest.mark.parametrize('case', LAYERS)
def test_memory_and_gradients(case: str, train: bool) -> None:
    mask = padding_of((4, 5), (2, 3), (4, 1))
    encoder, attn = copy.deepcopy(LAYERS[case])
    (whole, grads), (skipped, other) = (
        run_layers(encoder_of({**encoder, 'num_cp': num_cp}, attn, skip).train(train), mask)
        for skip, num_cp in ((False, -1), (True, 2 if train else -1)))  # recomputed too
    torch.testing.assert_close(skipped[~mask], whole[~mask], atol=2e-5, rtol=1e-4)
    assert whole[mask].any() and not skipped[mask].any()
    assert grads.keys() == other.keys()
    for name, grad in grads.items():
        torch.testing.assert_close(other[name], grad, atol=2e-4, rtol=1e-3,
                                   msg=lambda text, name=name: f'{name}: {text}')


@pytest.mark.parametrize('relative', [False, True])
@pytest.mark.parametrize('others', [[0], [6], [12], [0, 5, 10]])  # corners, a hole, a column
def test_padding_of_any_shape(relative: bool, others: list[int]) -> None:
    """Without a relative encoding any tokens can be left out; a relative one needs rectangles at
    the first cell."""
    mask = padding_of((4, 5), (3, 3))
    mask[1, others] = True
    attn = dict(rel_pos_encoding=IRPE) if relative else dict()
    (whole, _), (skipped, _) = (run_layers(encoder_of(dict(), attn, skip).eval(), mask)
                                for skip in (False, True))
    torch.testing.assert_close(skipped[~mask], whole[~mask], atol=2e-5, rtol=1e-4)
    assert skipped[mask].any() == relative


def test_an_image_of_padding_alone_and_a_batch_of_it() -> None:
    encoder = encoder_of(dict(), dict(rel_pos_encoding=IRPE), True).eval()
    mask = padding_of((0, 0), (3, 2))
    memory, grads = run_layers(encoder, mask)
    assert memory[0].abs().max() == 0 and memory[1][~mask[1]].all()
    assert all(grad.isfinite().all() for grad in grads.values())
    assert run_layers(encoder, padding_of((0, 0)))[0].isfinite().all()


def test_a_little_padding_is_not_worth_it() -> None:
    encoder = encoder_of(dict(), dict(), None).eval()
    some, little = padding_of((4, 5), (4, 4)), torch.zeros(2, 20, dtype=torch.bool)
    little[0, -1] = True
    assert not run_layers(encoder, some)[0][some].any()
    assert run_layers(encoder, little)[0][little].all()
    # weights are those of all tokens
    memory, weights = encoder(torch.ones(2, 20, 16), None, some, need_weights=True)
    assert weights[0].shape == (2, 2, 20, 20) and memory[some].any()


def test_one_position_for_all_images() -> None:
    encoder, mask = encoder_of(dict(), dict(), True).eval(), padding_of((4, 5), (2, 3))
    tokens, pos = torch.randn(2, 20, 16), torch.randn(1, 20, 16)
    torch.testing.assert_close(encoder(tokens, pos, mask),
                               encoder(tokens, pos.repeat(2, 1, 1), mask))


@pytest.mark.parametrize('mask', [torch.zeros(2, 19, dtype=torch.bool), torch.zeros(2, 20)])
def test_bad_masks(mask) -> None:
    for skip in (False, True):
        encoder = encoder_of(dict(), dict(), skip)
        with pytest.raises(ValueError, match=r'key_padding_mask has.*\(2, 20\) and bool are req'):
            encoder(torch.ones(2, 20, 16), None, mask, spatial_shapes=HW)
