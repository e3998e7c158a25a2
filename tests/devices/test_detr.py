"""Encoders of the DETR family, pixel decoders and RT-DETR's hybrid encoder on another device."""
import pytest
import torch
from helpers.on_device import check

from mmposenc.detr import HybridEncoder
from mmposenc.functional.extents import cells_of

tiny_detr = pytest.importorskip('helpers.tiny_detr', exc_type=ImportError)
from mmdet.structures import DetDataSample  # noqa: E402

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
        memory = model.forward_encoder(**inputs)['memory']
        hidden = cells_of(inputs['feat_mask'])
        return memory if hidden is None else memory.masked_fill(hidden[..., None], 0)
    check(model, encode, maps)


def test_pixel_decoder():
    """Of MaskFormer. Mask2Former's reads the sizes of levels from the device in mmdet's code."""
    model = tiny_detr.build(tiny_detr.pixel_decoder(
        tiny_detr.DENSE, attn=dict(rel_pos_encoding=tiny_detr.IRPE), pos_encoding=tiny_detr.PEG))
    check(model, lambda m, *maps: m(list(maps), tiny_detr.PIXEL_METAS), tiny_detr.pixel_maps())


@pytest.mark.parametrize('padded', [False, True])
def test_hybrid_encoder(padded):
    encoder = tiny_detr.pixel_decoder(tiny_detr.DENSE)['encoder']
    model = HybridEncoder(in_channels=(4, 6, 8), out_channels=16, expansion=0.5, encoder=encoder)
    mask = torch.zeros(2, 16, 24, dtype=torch.bool)
    mask[1, 8:] = True
    check(model, lambda m, *x: m(x[:3], *x[3:]),
          [*tiny_detr.pixel_maps()[:3], mask][:3 + padded])
