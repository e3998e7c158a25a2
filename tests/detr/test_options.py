"""Options, what they do to the model, and bad input."""

import pytest
import torch
import torch._dynamo  # its settings are put back where it is imported before a test
from helpers import tiny_detr as tiny
from helpers.tiny_detr import IRPE, PEG, build, deformable, detr, dino, images, predict
from mmdet.models.layers.transformer import (
    DetrTransformerEncoder,
    coordinate_to_encoding,
    dino_layers,
)

from mmposenc.detr import DetrEncoder
from mmposenc.encodings import PEG as PEGModule
from mmposenc.engine.training.compiling import compile_regions
from mmposenc.functional.extents import extents_to_mask


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
    mask = extents_to_mask([(3, 4), (2, 3)], (3, 4), torch.device('cpu')).cells.flatten(1)
    memory, weights = model.encoder(tokens, None, mask, spatial_shapes=(3, 4), need_weights=True)
    without = model.encoder(tokens, None, mask, spatial_shapes=[(3, 4)])
    torch.testing.assert_close(memory[~mask], without[~mask])
    assert len(weights) == 2 and weights[0].shape == (2, 2, 12, 12)
    torch.testing.assert_close(weights[0].sum(-1), torch.ones(2, 2, 12))
    assert not weights[0][1, :, :, mask[1]].any()


def test_a_module_for_several_levels_and_fewer_channels_than_sines_are_refused() -> None:
    with pytest.raises(ValueError, match='is a module, but there are 3 levels'):
        build(deformable(levels=3, encoder=dict(pos_encoding=PEGModule(16))))
    with pytest.raises(ValueError, match='encoder has embed_dims=16; it must be 256'):
        build(tiny.conditional(dims=16))


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


def test_sines_of_a_box_are_as_many_as_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    """What mmdet's decoder computes where its encoding of boxes has that number."""
    monkeypatch.setattr(dino_layers, 'coordinate_to_encoding',
                        lambda boxes, **_: coordinate_to_encoding(boxes, num_feats=6))
    cfg = dino(num_queries=7)
    cfg['decoder']['coordinate_feats'] = 6
    model = build(cfg).eval()
    assert model.decoder.ref_point_head.layers[0].in_features == 4 * 6
    query, memory = torch.randn(2, 7, model.embed_dims), torch.randn(2, 20, model.embed_dims)
    given = dict(query=query, value=memory, key_padding_mask=None, self_attn_mask=None,
                 reference_points=torch.rand(2, 7, 4), valid_ratios=torch.rand(2, 2, 2),
                 spatial_shapes=torch.tensor([[4, 4], [2, 2]]),
                 level_start_index=torch.tensor([0, 16]),
                 reg_branches=model.bbox_head.reg_branches)
    torch.testing.assert_close(
        model.decoder(**given),
        dino_layers.DinoTransformerDecoder.forward(model.decoder, **given))


@pytest.mark.parametrize('sharing', ['stage', 'all'])
def test_one_relative_encoding_of_all_layers_is_saved_once(sharing: str) -> None:
    """(Its values, gradients and errors: tests/backbones/test_sharing.py; packed and recomputed:
    test_padding.py.)"""
    model = build(detr(encoder=dict(rel_pos_sharing=sharing, rel_pos_encoding=IRPE)))
    table = 'encoder.rel_pos_encoding.table_k'
    assert [key for key in model.state_dict() if 'rel_pos' in key] == [table]
    assert [key for key, _ in model.named_parameters(remove_duplicate=False)
            if 'rel_pos' in key] == [table]


def test_an_encoder_without_a_config_of_attention_has_mmdets() -> None:
    theirs = DetrTransformerEncoder(1, {}).layers[0].self_attn
    for options in ({}, dict(rel_pos_encoding=IRPE)):
        ours = DetrEncoder(1, {}, **options).layers[0].self_attn
        assert (ours.embed_dims, ours.num_heads) == (theirs.embed_dims, theirs.num_heads)


def test_the_encoder_compiles_into_one_graph() -> None:
    torch._dynamo.reset()
    encoder = build(detr(encoder=dict(rel_pos_sharing='all', rel_pos_encoding=IRPE))).encoder
    x = torch.randn(1, 12, 16)
    grads = []
    for function in (torch.compile(encoder, fullgraph=True, backend='eager'), encoder):
        encoder.zero_grad()
        function(x, spatial_shapes=(3, 4)).square().mean().backward()
        grads.append(encoder.rel_pos_encoding.table_k.grad.clone())
    torch.testing.assert_close(*grads, rtol=1e-4, atol=1e-6)
    assert compile_regions(build(detr()), backend='eager') == {
        'DetrDecoderLayer': 2, 'DetrEncoderLayer': 2, 'PVTBlock': 4}


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
    two = build(deformable(levels=2, encoder=dict(pos_encoding=PEG)))
    with pytest.raises(ValueError, match='has 1 levels, but the encoder has num_levels=2'):
        two.encoder(tokens, None, None, torch.tensor([[3, 4]]), torch.tensor([0]),
                    torch.ones(1, 1, 2))
    with pytest.raises(ValueError, match='reference_points has 3 numbers a point; it must have 2'):
        two.encoder.layers[0].self_attn(tokens, reference_points=torch.ones(1, 12, 2, 3),
                                        spatial_shapes=torch.tensor([[2, 4], [2, 2]]))
    with pytest.raises(ValueError, match='the neck gives 1 maps, but num_feature_levels=2'):
        two.pre_transformer((torch.zeros(1, 16, 2, 2),), None)


def test_a_layer_of_a_users_file(tmp_path) -> None:
    own = tmp_path / 'own.py'
    own.write_text('from mmposenc.detr import DetrEncoderLayer\n\n\n'
                   'class Doubled(DetrEncoderLayer):\n'
                   '    def forward(self, query, *args, **kwargs):\n'
                   '        return 2 * super().forward(query, *args, **kwargs)\n')
    layers = []
    for name in ('mmposenc.DetrEncoderLayer', f'{own}:Doubled'):
        cfg = detr()
        cfg['encoder']['layer_cfg']['type'] = name
        layers.append(build(cfg).encoder.layers[0])
    tokens = torch.randn(1, 6, 16)
    torch.testing.assert_close(layers[1](tokens), 2 * layers[0](tokens))


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
