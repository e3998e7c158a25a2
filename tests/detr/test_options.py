"""Options, what they do to the model, and bad input."""
import mmposenc  # noqa: F401  (before OpenMMLab's packages)

# isort: split
from functools import partial

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
    dino,
    images,
    predict,
    total_loss,
)
from mmdet.models.layers.transformer import coordinate_to_encoding, dino_layers
from mmengine.config import Config
from mmengine.registry import MODELS, init_default_scope

PEG_QK = dict(type='mmposenc.PEG', apply_to='qk')
POOL = dict(type='mmposenc.ContextPool', ratio=0.5)
#: Every way to encode, with the levels it runs on.
WAYS = {
    **{case: detr(encoder=encoder, attn=attn) for case, (encoder, attn) in ENCODERS.items()},
    'none, decoder too': detr(encoder=dict(encoder_pos=None), decoder=dict(key_pos=None)),
    'keys learned': detr(decoder=dict(key_pos='learned')),
    'several': detr(encoder=dict(pos_encoding=[PEG, dict(type='mmposenc.PEG')], positions=(-1, 1)),
                    attn=dict(rel_pos_encoding={**IRPE, 'rpe_on': 'qkv'})),
    'pools': detr(encoder=dict(pos_encoding=[PEG, POOL], positions=(-1, 0))),
    'deformable pools': deformable(levels=3, encoder=dict(pos_encoding=POOL)),
    'deformable peg': deformable(levels=3, encoder=dict(encoder_pos=None, pos_encoding=PEG)),
    'deformable shared': deformable(levels=3, encoder=dict(pos_encoding=PEG,
                                                           pos_encoding_shared=True)),
    'deformable qk': deformable(encoder=dict(pos_encoding=PEG_QK)),
    'deformable learned': deformable(encoder=dict(encoder_pos='learned'), with_box_refine=True),
    'conditional irpe': tiny.conditional(attn=dict(rel_pos_encoding=IRPE)),
    'conditional peg': tiny.conditional(encoder=dict(encoder_pos=None, pos_encoding=PEG)),
    'dab irpe, peg': tiny.dab(attn=dict(rel_pos_encoding=IRPE),
                              encoder=dict(encoder_pos='sine', pos_encoding=PEG)),
    'dab peg qk': tiny.dab(encoder=dict(encoder_pos='learned', pos_encoding=PEG_QK),
                      key=dict(key_pos='learned')),
    'dino peg': dino(num_queries=7, encoder=dict(encoder_pos=None, pos_encoding=PEG)),
    'dino shared': dino(num_queries=7, encoder=dict(encoder_pos='learned', pos_encoding=PEG,
                                                    pos_encoding_shared=True)),
    'ddq peg': tiny.ddq(num_queries=7, encoder=dict(pos_encoding=PEG, positions=(-1, 0))),
}


@pytest.mark.parametrize('boxes', [
    pytest.param(True, id='boxes'), pytest.param(False, id='no boxes', marks=pytest.mark.slow)])
@pytest.mark.parametrize('way', WAYS)
def test_a_training_step_reaches_every_parameter(way: str, boxes: bool) -> None:
    model = build(WAYS[way]).train()
    loss = total_loss(model, images(((64, 96), (45, 61)), boxes=boxes))
    loss.backward()
    assert torch.isfinite(loss)
    without = {n for n, p in model.named_parameters() if p.grad is None}
    assert without <= ({n for n in without if 'reg' in n} if not boxes else set())
    # the result of a PEG behind the last layer, and all others, is used
    if boxes:
        for name, p in model.named_parameters():
            # keys' biases move all logits of a query alike, and softmax does not see that
            if 'encoding' in name:
                assert p.grad.abs().max() > 0, name


def test_absolute_positions_are_those_asked_for() -> None:
    from mmdet.structures import DetDataSample
    sample = DetDataSample(metainfo=dict(img_shape=(64, 96), batch_input_shape=(64, 96)))
    feature = torch.randn(1, 16, 2, 3)

    def positions(**kwargs):
        model = build(detr(**kwargs))
        encoder, decoder = model.pre_transformer((feature,), [sample])
        return encoder['feat_pos'], decoder['memory_pos'], model

    sine_encoder, sine_keys, model = positions()
    expected = model.positional_encoding(None, input=feature).flatten(2).transpose(1, 2)
    assert torch.equal(sine_encoder, expected) and sine_keys is sine_encoder
    encoder, keys, _ = positions(encoder=dict(encoder_pos=None))
    assert encoder is None and torch.equal(keys, expected)
    encoder, keys, _ = positions(decoder=dict(key_pos=None))
    assert keys is None and torch.equal(encoder, expected)
    encoder, keys, model = positions(encoder=dict(encoder_pos='learned'))
    table = model.encoder_pos_encodings.pos_embed.unflatten(1, (25, 42))
    resized = torch.nn.functional.interpolate(table.permute(0, 3, 1, 2), (2, 3), mode='bicubic')
    torch.testing.assert_close(encoder, resized.flatten(2).transpose(1, 2))
    assert torch.equal(keys, expected)


def test_attention_weights_when_asked() -> None:
    model = build(detr(attn=dict(rel_pos_encoding=IRPE), encoder=dict(pos_encoding=PEG))).eval()
    tokens = torch.randn(2, 12, 16)
    mask = torch.zeros(2, 12, dtype=torch.bool).view(2, 3, 4)
    mask[1, 2:] = mask[1, :, 3:] = True
    mask = mask.flatten(1)
    memory, weights = model.encoder(tokens, None, mask, spatial_shapes=(3, 4), need_weights=True)
    without = model.encoder(tokens, None, mask, spatial_shapes=[(3, 4)])
    torch.testing.assert_close(memory[~mask], without[~mask])
    assert len(weights) == 2 and weights[0].shape == (2, 2, 12, 12)
    torch.testing.assert_close(weights[0].sum(-1), torch.ones(2, 2, 12))
    assert not weights[0][1, :, :, mask[1]].any()


@pytest.mark.parametrize('cfg', [detr(encoder=dict(pos_encoding=PEG),
                                      attn=dict(rel_pos_encoding=IRPE)),
                                 deformable(levels=3, encoder=dict(pos_encoding=PEG))])
def test_an_image_of_one_token(cfg: dict) -> None:
    """Alone, where BatchNorm has one value a channel to take statistics from only in evaluation,
    and beside a larger one."""
    model = build(cfg)
    for sizes in (((20, 30),), ((20, 30), (64, 96))):
        found = predict(model, images(sizes))[0]
        assert found.bboxes.isfinite().all() and found.scores.isfinite().all()
        assert (found.bboxes >= 0).all() and (found.bboxes[:, 2] <= 30).all()
    assert total_loss(model.train(), images(((20, 30), (64, 96)))).isfinite()


#: A detector, what is changed in its config, and what the error says.
BAD = [
    (dino, {'encoder.layer_cfg.self_attn_cfg.rel_pos_encoding': IRPE}, 'use pos_encoding'),
    (deformable, {'decoder.key_pos': None}, 'key_pos=None: the decoder of DeformableDETR has no'),
    (tiny.dab, {'encoder.encoder_pos': None}, 'encoder.encoder_pos=None: every layer'),
    (tiny.conditional, {'decoder.key_pos': None}, 'decoder.key_pos=None: cross-attention'),
    (detr, {'decoder.pos_encoding': PEG}, 'decoder.pos_encoding=.*object queries have no grid'),
    (detr, {'decoder.layer_cfg.cross_attn_cfg.rel_pos_encoding': IRPE}, 'queries have no grid'),
    (dino, {'encoder.skip_padding': True}, 'skip_padding=True: deformable attention'),
    (detr, {'encoder.encoder_pos': 'cosine'}, "encoder.encoder_pos='cosine' must be 'sine', "),
    (detr, {'encoder.encoder_pos': dict(type='mmposenc.PEG')}, 'encoder.encoder_pos={.*} must be'),
    (detr, {'decoder.key_pos': True}, "decoder.key_pos=True must be 'sine'"),
    (detr, {'encoder.positions': (0,)}, r'positions=\(0,\) needs a pos_encoding'),
    (detr, {'encoder.pos_encoding': PEG, 'encoder.positions': 0}, "positions=0 must be 'every'"),
    (detr, {'encoder.pos_encoding': PEG, 'encoder.positions': 'every', 'encoder.num_layers': 1},
     "positions='every' is no place in an encoder of num_layers=1"),
    (detr, {'encoder.pos_encoding': dict(PEG, padding='none')}, 'PEG changes the grid'),
    *((make, {'encoder.layer_cfg.self_attn_cfg.batch_first': False}, 'batch_first=False')
      for make in (detr, dino)),
    (detr, {'encoder.num_layers': 0}, 'num_layers=0 must be at least 1'),
    (detr, {'encoder.num_cp': 3}, 'num_cp=3'),
    (detr, {'encoder.layer_cfg.self_attn_cfg.droput': 0.1},
     "MultiheadAttention has no argument 'droput'; did you mean 'dropout'"),
    (detr, {'encoder.rel_pos_encodign': IRPE}, "encoder: DetrEncoder has no argument "
                                               "'rel_pos_encodign'; did you mean 'rel_pos_"),
    (deformable, {'encoder.positons': (0,)}, "DeformableEncoder .*; did you mean 'positions'"),
    (detr, {'encoder.layer_cfg.rel_pos_encoding': IRPE}, "encoder.layer_cfg: DetrEncoderLayer has"),
    (detr, {'encoder.layer_cfg.ffn_cfg.ffn_dropp': 0.1}, "ffn_cfg: FFN .*; did you mean 'ffn_dr"),
    (detr, {'decoder.num_layer': 1}, "decoder: DetrDecoder .*; did you mean 'num_layers'"),
    (detr, {'decoder.rel_pos_encoding': IRPE}, 'decoder.rel_pos_encoding=.*have no grid; write'),
    (dino, {'encoder.rel_pos_encoding': IRPE}, 'no logits of pairs of tokens; use pos_encoding'),
    (detr, {'encoder.rel_pos_encoding': IRPE,
            'encoder.layer_cfg.self_attn_cfg.rel_pos_encoding': IRPE}, 'give one of them'),
    (detr, {'positional_encoding.num_feats': 16}, 'num_feats=16 must be half of'),
    (partial(tiny.conditional, dims=16), {}, 'encoder has embed_dims=16; it must be 256'),
    (dino, {'decoder.layer_cfg.cross_attn_cfg.num_levels': 3}, 'but the decoder has num_levels=3'),
    (deformable, {'num_feature_levels': 2}, '=2, but the encoder has num_levels=1'),
    (dino, {'decoder.coordinate_feats': 7}, 'decoder.coordinate_feats=7 must be even')]


@pytest.mark.parametrize('make, changes, message', BAD)
def test_contradictions_are_named(make, changes: dict, message: str) -> None:
    init_default_scope('mmdet')
    cfg = Config(make())
    cfg.merge_from_dict(changes)
    with pytest.raises(ValueError, match=message):
        MODELS.build(cfg._cfg_dict)


@pytest.mark.parametrize('encoder, attn', [
    (dict(encoder_pos=None, pos_encoding=dict(type='mmposenc.PEG', zero_init=True)), None),
    (None, dict(rel_pos_encoding=dict(type='mmposenc.CRPE', windows=3, zero_init=True))),
    (None, dict(rel_pos_encoding=dict(type='mmposenc.CombinedRPE', zero_init=True, encodings=[
        dict(type='mmposenc.LePE'), dict(type='mmposenc.ShawRPE')])))], ids=str)
def test_what_starts_at_zero_does_so_after_mmdets_initialization(encoder, attn) -> None:
    model = build(detr(encoder=encoder, attn=attn))
    model.init_weights()
    starts = [each for each in model.encoder.modules() if getattr(each, 'starts_at_zero', False)]
    assert starts and not any(parameter.any() for each in starts for parameter in each.parameters())


@pytest.mark.parametrize('feats', [6, 16])
def test_sines_of_a_box_are_as_many_as_asked(feats: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """What mmdet's decoder computes where its encoding of boxes has that number."""
    def encoded(boxes: torch.Tensor, **_: int) -> torch.Tensor:
        return coordinate_to_encoding(boxes, num_feats=feats)
    monkeypatch.setattr(dino_layers, 'coordinate_to_encoding', encoded)
    init_default_scope('mmdet')
    torch.manual_seed(0)
    cfg = dino(num_queries=7, encoder=dict(encoder_pos=None, pos_encoding=PEG))
    cfg['decoder']['coordinate_feats'] = feats
    model = MODELS.build(cfg).eval()
    model.init_weights()
    assert model.decoder.ref_point_head.layers[0].in_features == 4 * feats
    query, memory = torch.randn(2, 7, model.embed_dims), torch.randn(2, 20, model.embed_dims)
    shapes = torch.tensor([[4, 4], [2, 2]])
    given = dict(query=query, value=memory, key_padding_mask=None, self_attn_mask=None,
                 reference_points=torch.rand(2, 7, 4), spatial_shapes=shapes,
                 level_start_index=torch.tensor([0, 16]), valid_ratios=torch.rand(2, 2, 2),
                 reg_branches=model.bbox_head.reg_branches)
    expected = dino_layers.DinoTransformerDecoder.forward(model.decoder, **given)
    found = model.decoder(**given)
    torch.testing.assert_close(found, expected)

    def gradients(outs: tuple[torch.Tensor, torch.Tensor]) -> list[torch.Tensor]:
        """Of boxes too, from which one box back is learned."""
        loss = sum((out * out.detach().sin()).sum() for out in outs)
        return list(torch.autograd.grad(loss, [*model.decoder.parameters(),
                                               *model.bbox_head.reg_branches[0].parameters()]))
    torch.testing.assert_close(gradients(found), gradients(expected))


def test_a_relative_encoding_of_the_encoder_is_that_of_its_layers() -> None:
    given, = (build(detr(encoder=dict(rel_pos_encoding=[IRPE, dict(type='mmposenc.ALiBi2D')]))),)
    usual = build(detr(attn=dict(rel_pos_encoding=[IRPE, dict(type='mmposenc.ALiBi2D')])))
    usual.load_state_dict(given.state_dict())
    found, wanted = (predict(model, images(((64, 96),)))[0] for model in (given, usual))
    assert any('rel_pos_encoding' in name for name in given.state_dict())
    assert torch.equal(found.bboxes, wanted.bboxes) and torch.equal(found.scores, wanted.scores)


def test_a_module_cannot_stand_on_several_levels() -> None:
    from mmposenc.encodings import PEG as Module
    cfg = deformable(levels=3, encoder=dict(pos_encoding=None))
    init_default_scope('mmdet')
    cfg['encoder']['pos_encoding'] = Module(16)
    with pytest.raises(ValueError, match='is a module, but there are 3 levels'):
        MODELS.build(cfg)


def test_images_that_do_not_fit_the_batch_are_named() -> None:
    from mmdet.structures import DetDataSample
    model = build(detr())
    for shape in ((0, 10), (65, 64)):
        samples = [DetDataSample(metainfo=dict(img_shape=shape, batch_input_shape=(64, 64)))]
        with pytest.raises(ValueError, match=rf'img_shape=\({shape[0]}, {shape[1]}\) of image 0'):
            model.pre_transformer((torch.zeros(1, 16, 2, 2),), samples)
    with pytest.raises(ValueError, match='batch_data_samples is empty'):
        model.pre_transformer((torch.zeros(1, 16, 2, 2),), None)


def test_grids_that_do_not_fit_are_named() -> None:
    model = build(detr(attn=dict(rel_pos_encoding=IRPE), encoder=dict(pos_encoding=PEG)))
    tokens = torch.zeros(1, 12, 16)
    with pytest.raises(ValueError, match=r'query has 12 tokens, but spatial_shapes=\[\(3, 5\)\]'):
        model.encoder(tokens, spatial_shapes=(3, 5))
    with pytest.raises(ValueError, match='q_grid=None'):
        model.encoder(tokens)
    with pytest.raises(ValueError, match='dtype torch.float32; .* and bool are required'):
        model.encoder(tokens, None, torch.zeros(1, 12), spatial_shapes=(3, 4))
    two = build(deformable(levels=2, encoder=dict(pos_encoding=PEG)))
    with pytest.raises(ValueError, match='has 1 levels, but the encoder has num_levels=2'):
        two.encoder(tokens, None, None, torch.tensor([[3, 4]]), torch.tensor([0]),
                    torch.ones(1, 1, 2))
    with pytest.raises(ValueError, match='the neck gives 1 maps, but num_feature_levels=2'):
        two.pre_transformer((torch.zeros(1, 16, 2, 2),), None)


def test_layers_of_a_config_by_name(tmp_path) -> None:
    """mmdet's DETR around the layers that a config names, and around a layer of a user's file."""
    from mmposenc.detr import DeformableEncoderLayer, DetrEncoderLayer
    dense = dict(layer_cfg=dict(type='mmposenc.DetrEncoderLayer', **detr()['encoder']['layer_cfg']))
    models = [build(detr()), build({**detr(), 'encoder': {**detr()['encoder'], **dense}})]
    assert [type(layer) for layer in models[1].encoder.layers] == 2 * [DetrEncoderLayer]
    losses = [total_loss(model, images(((64, 64), (45, 61)))) for model in models]
    torch.testing.assert_close(*losses, rtol=0, atol=0)
    cfg = deformable()
    cfg['encoder']['layer_cfg']['type'] = 'mmposenc.DeformableEncoderLayer'
    assert type(build(cfg).encoder.layers[0]) is DeformableEncoderLayer
    own = tmp_path / 'own.py'
    own.write_text('from mmposenc.detr import DetrEncoderLayer\n\n\n'
                   'class Doubled(DetrEncoderLayer):\n'
                   '    def forward(self, query, *args, **kwargs):\n'
                   '        return 2 * super().forward(query, *args, **kwargs)\n')
    dense['layer_cfg']['type'] = f'{own}:Doubled'
    doubled = build({**detr(), 'encoder': {**detr()['encoder'], **dense}})
    tokens = torch.randn(1, 6, 16)
    torch.testing.assert_close(doubled.encoder.layers[0](tokens),
                               2 * models[0].encoder.layers[0](tokens))
    dense['layer_cfg']['type'] = 'mmposenc.PEG'
    with pytest.raises(ValueError, match="type='mmposenc.PEG' must be mmposenc.DetrEncoderLayer"):
        build({**detr(), 'encoder': {**detr()['encoder'], **dense}})


@pytest.mark.parametrize('make', [dino, tiny.ddq])
def test_more_queries_than_cells(make):
    """Two stages take their queries among the cells; DDQ takes as many as there are."""
    model = build({**make(), 'num_queries': 40, 'test_cfg': dict(max_per_img=5)})
    assert len(predict(model, images(((256, 320),)))) == 1
    if make is tiny.ddq:
        predict(model, images(((32, 48),)))
        return
    with pytest.raises(ValueError, match=r'num_queries=40 is more than the \d+ cells of the maps '
                       r'\(\d+x\d+.*\) of images of this size; lower model.num_queries'):
        predict(model, images(((32, 48),)))
