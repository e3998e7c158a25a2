"""Files of the official Deformable DETR give, converted, what the official model gives."""
from __future__ import annotations

import argparse

import numpy as np
import pytest
import torch
from golden import load_golden
from scripts import load_tool

from mmposenc.checkpoint import convert, convert_with_report
from mmposenc.checkpoint.detr import COCO_IDS
from mmposenc.functional.masking import extents_to_mask

DIMS, HIDDEN, QUERIES, LAYERS, WIDTH, HEADS, POINTS = 256, 24, 5, 2, 4, 4, 2
Params = dict[str, torch.Tensor]


def numbers(rng: np.random.RandomState, *shape: int) -> torch.Tensor:
    return torch.from_numpy(rng.standard_normal(shape)).float()


def release(levels: int = 4, *, refine: bool = False, two_stage: bool = False,
            classes: int = 91) -> Params:
    """A file as the release saves it, of a small model with random weights."""
    rng = np.random.RandomState(0)  # whose numbers are the same everywhere
    p: Params = {}

    def draw(name: str, *shape: int, scale: float = 1.0) -> None:
        fan = max(1, torch.Size(shape[1:]).numel())
        p[name] = numbers(rng, *shape) * (scale / fan ** 0.5)

    def linear(name: str, rows: int, cols: int) -> None:
        draw(f'{name}.weight', rows, cols)
        draw(f'{name}.bias', rows, scale=0.3)

    def norm(name: str, dims: int, running: bool = False) -> None:
        p[f'{name}.weight'] = 1 + 0.2 * numbers(rng, dims)
        draw(f'{name}.bias', dims, scale=0.2)
        if running:
            draw(f'{name}.running_mean', dims, scale=0.2)
            p[f'{name}.running_var'] = 1 + numbers(rng, dims).abs()

    def attention(name: str) -> None:
        samples = HEADS * levels * POINTS
        for part, rows in (('sampling_offsets', 2 * samples), ('attention_weights', samples),
                           ('value_proj', DIMS), ('output_proj', DIMS)):
            linear(f'{name}.{part}', rows, DIMS)

    def layer(name: str, norms: int) -> None:
        linear(f'{name}.linear1', HIDDEN, DIMS)
        linear(f'{name}.linear2', DIMS, HIDDEN)
        for i in range(norms):
            norm(f'{name}.norm{i + 1}', DIMS)

    _resnet(draw, norm)
    for i in range(LAYERS):
        attention(f'transformer.encoder.layers.{i}.self_attn')
        layer(f'transformer.encoder.layers.{i}', 2)
        name = f'transformer.decoder.layers.{i}'
        attention(f'{name}.cross_attn')
        draw(f'{name}.self_attn.in_proj_weight', 3 * DIMS, DIMS)
        draw(f'{name}.self_attn.in_proj_bias', 3 * DIMS, scale=0.3)
        linear(f'{name}.self_attn.out_proj', DIMS, DIMS)
        layer(name, 3)
    draw('transformer.level_embed', levels, DIMS, scale=DIMS ** 0.5)
    if two_stage:
        linear('transformer.enc_output', DIMS, DIMS)
        norm('transformer.enc_output_norm', DIMS)
        linear('transformer.pos_trans', 2 * DIMS, 2 * DIMS)
        norm('transformer.pos_trans_norm', 2 * DIMS)
    else:
        draw('query_embed.weight', QUERIES, 2 * DIMS, scale=DIMS ** 0.5)
        linear('transformer.reference_points', 2, DIMS)
    channels = [4 * WIDTH * 2 ** stage for stage in (1, 2, 3)][-levels:]
    convolutions = [(dims, 1) for dims in channels]
    convolutions += [(channels[-1], 3), (DIMS, 3)][:levels - len(channels)]
    for i, (dims, kernel) in enumerate(convolutions):
        draw(f'input_proj.{i}.0.weight', DIMS, dims, kernel, kernel)
        draw(f'input_proj.{i}.0.bias', DIMS, scale=0.3)
        norm(f'input_proj.{i}.1', DIMS)
    for i in range(LAYERS + two_stage):
        fresh = i == 0 or refine
        linear(f'class_embed.{i}', classes, DIMS)
        for j, rows in enumerate((DIMS, DIMS, 4)):
            linear(f'bbox_embed.{i}.layers.{j}', rows, DIMS)
        if not fresh:  # one branch for all layers
            for name in [name for name in p if '_embed.0.' in name]:
                p[name.replace('.0.', f'.{i}.', 1)] = p[name]
    held = ['bbox_embed'] * refine + ['class_embed'] * two_stage
    p |= {f'transformer.decoder.{name}': value for name, value in p.items()
          if name.split('.')[0] in held}
    return p


def _resnet(draw, norm) -> None:
    """ResNet-50 with a sixteenth of its channels."""
    body, inplanes = 'backbone.0.body', WIDTH
    draw(f'{body}.conv1.weight', WIDTH, 3, 7, 7)
    norm(f'{body}.bn1', WIDTH, True)
    for stage, blocks in enumerate((3, 4, 6, 3)):
        planes = WIDTH * 2 ** stage
        for block in range(blocks):
            name = f'{body}.layer{stage + 1}.{block}'
            for i, shape in enumerate(((planes, inplanes, 1, 1), (planes, planes, 3, 3),
                                       (4 * planes, planes, 1, 1)), start=1):
                draw(f'{name}.conv{i}.weight', *shape)
                norm(f'{name}.bn{i}', shape[0], True)
            if block == 0:
                draw(f'{name}.downsample.0.weight', 4 * planes, inplanes, 1, 1)
                norm(f'{name}.downsample.1', 4 * planes, True)
            inplanes = 4 * planes


def detector(name: str, **kwargs: bool) -> torch.nn.Module:
    """A config of this project, at the size of :func:`release`."""
    from mmengine.registry import MODELS, init_default_scope

    import mmposenc  # noqa: F401
    from mmposenc.engine import load_config
    init_default_scope('mmdet')
    cfg = load_config(f'mmposenc::detection/deformable_detr/{name}_16xb2-50e_coco.py').model
    cfg.update(num_queries=QUERIES, **kwargs)
    cfg.backbone.update(base_channels=WIDTH, stem_channels=WIDTH, init_cfg=None)
    cfg.neck.bias = True
    cfg.neck.in_channels = [channels * WIDTH // 64 for channels in cfg.neck.in_channels]
    for coder, attentions in (('encoder', ['self_attn_cfg']),
                              ('decoder', ['self_attn_cfg', 'cross_attn_cfg'])):
        cfg[coder].num_layers = LAYERS
        cfg[coder].layer_cfg.ffn_cfg.feedforward_channels = HIDDEN
        for attention in attentions:
            cfg[coder].layer_cfg[attention].num_heads = HEADS
            if 'num_points' in cfg[coder].layer_cfg[attention]:
                cfg[coder].layer_cfg[attention].num_points = POINTS
    return MODELS.build(cfg).eval()


CASES = {
    'single scale': ('deformable-detr_r50-ss', dict(levels=1)),
    'dc5': ('deformable-detr_r50-dc5', dict(levels=1)),
    'multi-scale': ('deformable-detr_r50', dict(levels=4)),
    'refinement': ('deformable-detr_r50', dict(levels=4, refine=True)),
    'two stages': ('deformable-detr_r50', dict(levels=4, refine=True, two_stage=True)),
}


SIZES = ((96, 96), (64, 128))


@pytest.mark.parametrize('case', CASES)
def test_scores_and_boxes_are_the_releases(case) -> None:
    """Of two images, of which one is padded in height and one in width."""
    pytest.importorskip('mmdet')
    from mmdet.structures import DetDataSample
    name, options = CASES[case]
    model = detector(name, with_box_refine=options.get('refine', False),
                     as_two_stage=options.get('two_stage', False))
    source = release(**options)
    model.load_state_dict(convert(source, 'deformable-detr'))
    height, width = (max(sides) for sides in zip(*SIZES, strict=True))
    padding = extents_to_mask(list(SIZES), (height, width), torch.device('cpu'))
    images = numbers(np.random.RandomState(1), 2, 3, height, width)
    images = images.masked_fill(padding[:, None], 0)
    samples = [DetDataSample(metainfo=dict(img_shape=size, batch_input_shape=(height, width)))
               for size in SIZES]
    with torch.no_grad():
        classes, boxes = model(images, samples, mode='tensor')[:2]
    _, expected = load_golden('deformable_detr')
    expected_classes, expected_boxes = (expected[f'{case}.{key}'] for key in ('classes', 'boxes'))
    close = dict(rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(boxes, expected_boxes, **close)
    torch.testing.assert_close(classes, expected_classes[..., list(COCO_IDS)], **close)
    assert expected_boxes[..., :2].std(2).min() > 1e-2  # queries that differ


def test_the_row_that_scores_proposals_stays_first() -> None:
    source = release(refine=True, two_stage=True)
    converted = convert(source, 'deformable-detr')
    rows = converted[f'bbox_head.cls_branches.{LAYERS}.weight']
    assert torch.equal(rows[0], source[f'class_embed.{LAYERS}.weight'][0])
    assert torch.equal(rows[79], source[f'class_embed.{LAYERS}.weight'][90])
    rows = converted['bbox_head.cls_branches.0.weight']
    assert torch.equal(rows[0], source['class_embed.0.weight'][1])


def test_other_numbers_of_classes_stay() -> None:
    source = release(classes=20, two_stage=True)
    assert torch.equal(convert(source, 'deformable-detr')['bbox_head.cls_branches.2.weight'],
                       source['class_embed.2.weight'])


def test_what_the_decoder_holds_once_more_is_dropped_with_a_reason() -> None:
    source = release(refine=True)
    report = convert_with_report(source, 'deformable-detr')
    assert set(report.dropped) == {name.removeprefix('transformer.') for name in source
                                   if name.startswith('transformer.decoder.bbox_embed.')}


def test_a_file_as_the_release_saves_it(tmp_path, capsys) -> None:
    """With its options beside the weights; what the model needs is printed."""
    main = load_tool('convert_checkpoint').main
    for options, needs in ((dict(levels=1), 'model.neck.bias=True\n'),
                           (dict(refine=True, two_stage=True), 'model.neck.bias=True '
                            'model.with_box_refine=True model.as_two_stage=True\n')):
        torch.save({'model': release(**options), 'epoch': 49,
                    'args': argparse.Namespace(lr=2e-4, device='cuda')}, tmp_path / 'in.pth')
        main(['auto', str(tmp_path / 'in.pth'), str(tmp_path / 'out.pth'), '--overwrite'])
        printed = capsys.readouterr().out
        assert f'the model that takes them needs {needs}' in printed
        assert 'not weights, left out: epoch, args' in printed
    written = torch.load(tmp_path / 'out.pth')
    assert written['meta']['source'] == 'deformable-detr'
    assert set(written['state_dict']) == set(convert(release(**options), 'deformable-detr'))


def test_two_stages_with_one_branch_are_refused() -> None:
    with pytest.raises(ValueError, match='two stages without box refinement score proposals and '
                                         'classes by one shared branch of 91 numbers'):
        convert(release(two_stage=True), 'deformable-detr')


def test_unknown_names_are_listed() -> None:
    with pytest.raises(ValueError, match='has no rule for 1 of .*mask_head.lay1.weight'):
        convert({**release(), 'mask_head.lay1.weight': torch.zeros(1)}, 'deformable-detr')
