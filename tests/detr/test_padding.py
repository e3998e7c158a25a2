"""Padding: what lies there, and how much of it, changes nothing."""
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


def assert_memory_is_the_images(model, strides, image, full, **inputs) -> None:
    """The memory of an image does not depend on what its batch is filled up with."""
    channels = model.encoder.embed_dims
    own, grids = ([tuple(-(-side // s) for side in size) for s in strides]
                  for size in (image, full))
    alone = encode(model, maps(own, channels), [image], image,
                   **{key: each(1) for key, each in inputs.items()})[0]
    for fill in (0.0, 50.0, -3e3):
        memory = encode(model, padded(maps(own, channels), grids, fill), [image, full], full,
                        **{key: each() for key, each in inputs.items()})[0]
        torch.testing.assert_close(valid_tokens(memory, grids, own), alone, atol=2e-5, rtol=1e-4)


# BatchNorm, while training, takes its statistics from the whole batch: see below for that.
@pytest.mark.parametrize('case, train', [
    (case, train) for case, (encoder, _) in ENCODERS.items() for train in (False, True)
    if not (train and 'norm_act' in encoder.get('pos_encoding', {}))])
def test_encoder_of_detr(case: str, train: bool) -> None:
    encoder, attn = ENCODERS[case]
    model = build(detr(encoder=encoder, attn=attn)).train(train)
    for full in ((4 * 32 - 3, 7 * 32), (7 * 32 - 3, 9 * 32)):
        assert_memory_is_the_images(model, [32], (4 * 32 - 11, 5 * 32), full)


@pytest.mark.parametrize('config, case', [
    (tiny.conditional, 'irpe qkv, chunked'), (tiny.dab, 'irpe bias, peg'),
    (tiny.dab, 'peg on qk')])
def test_encoder_of_other_dense_detectors(config, case) -> None:
    """DAB's encoder scales the positions of valid tokens alone, packed or not."""
    encoder, attn = ENCODERS[case]
    for skip in (False, True):
        model = build(config(encoder={**encoder, 'skip_padding': skip}, attn=attn)).eval()
        assert_memory_is_the_images(model, [32], (4 * 32 - 11, 5 * 32), (7 * 32 - 3, 9 * 32))


@pytest.mark.parametrize('shared', [False, True], ids=['own', 'shared'])
@pytest.mark.parametrize('levels', [1, 3])
@pytest.mark.parametrize('encoder_pos', ['sine', None, 'learned'])
def test_encoder_of_deformable_detr(levels: int, shared: bool, encoder_pos) -> None:
    model = build(deformable(levels=levels, encoder=dict(
        pos_encoding=PEG, positions=(-1, 0), pos_encoding_shared=shared,
        encoder_pos=encoder_pos))).eval()
    assert len(model.encoder.pos_encodings) == (1 if shared else levels)
    strides = [32] if levels == 1 else [16, 32, 64]
    assert_memory_is_the_images(model, strides, (100, 150), (161, 230))


def test_encoder_of_grounding_dino() -> None:
    encoder = dict(pos_encoding=PEG, positions=(-1, 0, 1))
    model = build(tiny.grounding(levels=3, encoder=encoder)).eval()
    assert_memory_is_the_images(model, [16, 32, 64], (100, 150), (161, 230), text_dict=tiny.words)


DETECTORS = {
    'detr': lambda: detr(encoder=dict(encoder_pos=None, pos_encoding=PEG),
                         attn=dict(rel_pos_encoding=IRPE)),
    'detr, pape': lambda: detr(attn=dict(rel_pos_encoding=dict(type='mmposenc.PaPE'))),
    'detr on a Swin': lambda: detr(
        backbone=dict(type='mmposenc.Swin', embed_dims=8, num_layers=(1, 1, 1, 1),
                      num_heads=(1, 1, 2, 2), window_size=2, mlp_ratio=1, drop_path_rate=0.0,
                      mask_padding=True, out_indices=(3,)), channels=64),
    'single': lambda: deformable(encoder=dict(encoder_pos=None, pos_encoding=PEG)),
    'multi, refine': lambda: deformable(
        levels=3, with_box_refine=True, encoder=dict(pos_encoding=PEG)),
    'two stages': lambda: deformable(
        levels=2, dims=256, num_queries=12, with_box_refine=True, as_two_stage=True, encoder=dict(
            pos_encoding=PEG)),
    'conditional': lambda: tiny.conditional(encoder=dict(encoder_pos=None, pos_encoding=PEG),
                                       attn=dict(rel_pos_encoding=IRPE)),
    'dab': lambda: tiny.dab(encoder=dict(encoder_pos='sine', pos_encoding=PEG),
                            attn=dict(rel_pos_encoding=IRPE)),
    # the neck's GroupNorm sees no padding either, and its fourth level is made of the third
    'multi, GroupNorm': lambda: deformable(
        levels=4, encoder=dict(pos_encoding=PEG), neck=dict(
            type='mmposenc.ChannelMapper', norm_cfg=dict(type='GN', num_groups=4))),
    'multi, hybrid encoder': lambda: {**deformable(levels=2), 'neck': dict(
        type='mmposenc.HybridEncoder', in_channels=[16, 16], out_channels=16, encoder=dict(
            pos_encoding=dict(type='mmposenc.PEG')))},
    'detr, biases by boxes': lambda: detr(decoder=dict(
        num_layers=2, relation=dict(type='mmposenc.PositionRelation'),
        box_bias=dict(type='mmposenc.BoxRPB', hidden_dims=8))),
}


@pytest.mark.parametrize('case', tiny.short(
    DETECTORS, 'detr', 'multi, hybrid encoder', 'dab', 'detr, biases by boxes'))
def test_boxes_of_an_image_do_not_depend_on_its_batch(case: str) -> None:
    model = build(DETECTORS[case]())
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


TWO_STAGES = {
    'two stages': DETECTORS['two stages'],
    'dino': lambda: tiny.dino(num_queries=12, encoder=dict(encoder_pos=None, pos_encoding=PEG)),
    'ddq': lambda: tiny.ddq(num_queries=9, encoder=dict(pos_encoding=PEG)),
}


@pytest.mark.parametrize('case', tiny.short(TWO_STAGES, 'dino'))
def test_proposals_of_an_image_do_not_depend_on_its_batch(case: str) -> None:
    """The decoders of DINO and DDQ embed them in units of the padded batch, as their releases do:
    from there on, boxes depend on it."""
    found = []
    model = build(TWO_STAGES[case]())
    decode = model.forward_decoder
    model.forward_decoder = lambda **kwargs: found.append(kwargs) or decode(**kwargs)
    predict(model, images(((45, 61),)))
    predict(model, images(((45, 61), (91, 140))))
    for name in ('query', 'reference_points'):
        torch.testing.assert_close(found[1][name][0], found[0][name][0], atol=2e-5, rtol=1e-4)


@pytest.mark.parametrize('mixed', [False, True])
@pytest.mark.parametrize('case', tiny.short(TWO_STAGES, 'ddq'))
def test_proposals_of_two_stages_train(case: str, mixed: bool) -> None:
    """Logits of padding are low, and the loss stays finite, in mixed precision too. A new model has
    all names of the weights."""
    model = build(TWO_STAGES[case]()).train()
    branches, names = model.bbox_head.cls_branches, list(model.state_dict())
    hooks = [dict(branch._forward_hooks) for branch in branches]
    with torch.autocast('cpu', torch.bfloat16, enabled=mixed):
        loss = total_loss(model, images(((45, 61), (91, 140))))
    loss.backward()
    assert loss.isfinite()
    assert all(p.grad is None or p.grad.isfinite().all() for p in model.parameters())
    assert hooks == [branch._forward_hooks for branch in branches]
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
