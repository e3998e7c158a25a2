"""RF-DETR against the numbers of its release, at any size, and with other encodings."""
from functools import partial

import pytest
import torch
from helpers import tiny_detr as tiny
from helpers.golden_files import load_golden
from helpers.released_detectors import SIZES, drawn_weights, names_in, outcome

from mmposenc.checkpoint import convert

VIT = dict(embed_dims=24, num_layers=3, img_size=40, out_indices=(0, 2), layer_scale_init_value=1.0,
           mask_padding=False)
SMALL = partial(tiny.rfdetr, dims=32)
CASES = {
    'one': partial(SMALL, backbone=VIT), 'two': partial(
        SMALL, levels=2, neck=dict(scales=(2, 0.5)),
        backbone={**VIT, 'window_count': None, 'window_tokens': 'shared', 'global_blocks': ()})}


@pytest.mark.parametrize('case', CASES)
def test_scores_boxes_losses_and_gradients_are_those_of_the_release(case, float64) -> None:
    """On a square and on an oblong image; losses of all groups, of the chosen tokens and of each
    layer."""
    cfg = CASES[case]()
    cfg.neck.update(in_channels=(24, 24), num_blocks=3)
    cfg.decoder.num_layers = 2 + (case == 'two')
    cfg.decoder.layer_cfg.cross_attn_cfg.update(num_heads=4, num_points=2 + (case == 'two'))
    cfg.decoder.layer_cfg.ffn_cfg.feedforward_channels = 40
    model = tiny.build(cfg).double()
    state = convert(drawn_weights(names_in('rf_detr.json.xz')[case]), 'rf-detr')
    _, expected = load_golden('rf_detr')
    count = 9  # Boxes of three groups; mmdet adds an epsilon of float32 to their number.
    parts = ('enc_loss', *(f'd{layer}.loss' for layer in range(cfg.decoder.num_layers - 1)), 'loss')
    for number, size in enumerate(SIZES):
        key = f'{case}.{number}'
        logits, boxes, losses = outcome(model, state, size)
        for name in losses:
            if not name.endswith('cls'):
                losses[name] = losses[name] * (count + torch.finfo(torch.float32).eps) / count
        model.zero_grad()
        sum(loss.sum() for loss in losses.values()).backward()
        squares = [sum(p.grad.square().sum() for name, p in model.named_parameters()
                       if name.startswith(part) and p.grad is not None)
                   for part in ('backbone', 'neck', 'decoder', 'bbox_head', 'memory', 'query')]
        found = dict(logits=logits[-1], boxes=boxes[-1], gradients=torch.stack(squares),
                     losses=torch.cat([losses[f'{part}_{kind}'].detach().view(1) for part in parts
                                       for kind in ('cls', 'bbox', 'iou')]))
        for kind, value in found.items():
            torch.testing.assert_close(value, expected[f'{key}.{kind}'], rtol=1e-11, atol=1e-11)


@pytest.mark.parametrize('word', ['keep', 'none', 'rotary', 'peg', 'none+irpe-k'])
def test_other_encodings_train(word) -> None:
    """As ``mmposenc compare`` and ``--encoding`` put them into the backbone; all weights learn."""
    from mmengine.config import Config

    from mmposenc.engine.config.parsed import ParsedConfig
    from mmposenc.engine.variants.applying import with_entry
    from mmposenc.engine.variants.encodings import entry_of_name
    cfg = Config(dict(default_scope='mmdet', model=tiny.rfdetr().to_dict()))
    cfg = with_entry(ParsedConfig(cfg), entry_of_name(word))
    model = tiny.build(cfg.model).train()
    tiny.total_loss(model, tiny.images(((64, 100), (45, 61)))).backward()
    assert all(p.grad is not None for p in model.parameters())
    assert all(len(each.scores) for each in tiny.predict(model, tiny.images(((50, 70),))))
