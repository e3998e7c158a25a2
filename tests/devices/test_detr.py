"""Encoders of the DETR family, pixel decoders and RT-DETR's hybrid encoder on another device."""
import pytest
import torch
from helpers.on_device import check

from mmposenc.detr import HybridEncoder

tiny_detr = pytest.importorskip('helpers.tiny_detr', exc_type=ImportError)
from mmdet.structures import DetDataSample  # noqa: E402
from mmengine.config import ConfigDict  # noqa: E402

#: Of detectors with encodings in their encoders.
DETECTORS = {
    **{f'DETR {name}': tiny_detr.detr(encoder=dict(encoder), attn=dict(attention))
       for name, (encoder, attention) in tiny_detr.ENCODERS.items()},
    'DAB-DETR': tiny_detr.dab(attn=dict(rel_pos_encoding=tiny_detr.IRPE)),
    'Conditional DETR': tiny_detr.conditional(encoder=dict(pos_encoding=tiny_detr.PEG)),
    **{name: make(encoder=dict(pos_encoding=tiny_detr.PEG)) for name, make in {
        'Deformable DETR': tiny_detr.deformable, 'DINO': tiny_detr.dino,
        'DDQ': tiny_detr.ddq, 'Grounding DINO': tiny_detr.grounding}.items()}}


@pytest.mark.parametrize('padded', [False, True])
@pytest.mark.parametrize('name', DETECTORS)
def test_encoders(name, padded):
    """From the maps of the neck to the memory; of images of one size, and of two. Padded tokens of
    the memory are zero on a CPU only, which leaves them out (``skip_padding``)."""
    model = tiny_detr.build(DETECTORS[name]).train()
    full = (9 * 32, 11 * 32)
    found = [DetDataSample(metainfo=dict(img_shape=size, batch_input_shape=full))
             for size in (full, (5 * 32 - 3, 8 * 32) if padded else full)]
    levels = getattr(model, 'num_feature_levels', 1)
    dims = model.embed_dims
    torch.manual_seed(2)  # With others rounding decides on which side of zero a ReLU's input is.
    maps = [torch.randn(2, dims, -(-9 // 2 ** level), -(-11 // 2 ** level))
            for level in range(levels)]

    def encode(model, *maps):
        inputs, _ = model.pre_transformer(maps, found)
        if hasattr(model, 'language_model'):
            inputs['text_dict'] = {
                key: x.to(maps[0] if x.is_floating_point() else maps[0].device)
                for key, x in tiny_detr.words().items()}
        memory, hidden = model.forward_encoder(**inputs)['memory'], inputs['feat_mask']
        return memory if hidden is None else memory.masked_fill(hidden[..., None], 0)
    check(model, encode, maps)


def layers(**attention):
    return dict(num_layers=2, layer_cfg=dict(
        self_attn_cfg=dict(embed_dims=16, num_heads=2, dropout=0.0, **attention),
        ffn_cfg=dict(embed_dims=16, feedforward_channels=24, ffn_drop=0.0,
                     act_cfg=dict(type='ReLU', inplace=True))))


def test_pixel_decoder():
    """Of MaskFormer. Mask2Former's reads the sizes of levels from the device in mmdet's code."""
    model = tiny_detr.build(ConfigDict(
        type='mmposenc.TransformerEncoderPixelDecoder', in_channels=[4, 6, 8, 10],
        feat_channels=16, out_channels=12, norm_cfg=dict(type='GN', num_groups=4),
        positional_encoding=dict(num_feats=8, normalize=True),
        encoder=dict(pos_encoding=tiny_detr.PEG, **layers(rel_pos_encoding=tiny_detr.IRPE))))
    maps = [torch.randn(2, c, 16 // 2 ** level, 24 // 2 ** level)
            for level, c in enumerate((4, 6, 8, 10))]
    metas = [dict(batch_input_shape=(64, 96), img_shape=shape) for shape in ((64, 96), (40, 64))]
    check(model, lambda m, *maps: m(list(maps), metas), maps)


@pytest.mark.parametrize('padded', [False, True])
def test_hybrid_encoder(padded):
    model = HybridEncoder(in_channels=(4, 6, 8), out_channels=16, expansion=0.5, encoder=layers())
    maps = [torch.randn(2, c, 16 // 2 ** level, 24 // 2 ** level)
            for level, c in enumerate((4, 6, 8))]
    mask = torch.zeros(2, 16, 24, dtype=torch.bool)
    mask[1, 8:] = True
    check(model, lambda m, *x: m(x[:3], *x[3:]), [*maps, mask][:3 + padded])
