"""iRPE's DETR, as released, through the converter."""
import pytest
import torch
from helpers.golden_files import assert_released, golden_names, load_golden

from mmposenc.checkpoint import convert


def options(stem: str) -> dict:
    """rpe-<ratio>-<method>-<mode>-<shared>-<sides>, the release's own short form."""
    _, ratio, method, mode, shared, sides = stem.split('_')[-1].split('-')
    return dict(type='mmposenc.IRPE', ratio=float(ratio), method=method, rpe_on=sides,
                mode={'ctx': 'contextual', 'bias': 'bias'}[mode], shared_heads=shared == '1')


@pytest.mark.parametrize('stem', golden_names('detr_irpe_*'))
def test_memory_and_decoder_states(stem: str) -> None:
    """With padding. (Layers that go through valid tokens alone: test_padding.py.)"""
    params, rest = load_golden(stem)
    from mmposenc.detr.encoders import DetrEncoder
    from mmposenc.openmmlab.mmdet.detr.decoders import DetrDecoder
    ffn = dict(embed_dims=32, feedforward_channels=48, num_fcs=2)
    attn = dict(embed_dims=32, num_heads=4)
    encoder = DetrEncoder(2, dict(self_attn_cfg=dict(rel_pos_encoding=options(stem), **attn),
                                  ffn_cfg=ffn), skip_padding=False)
    decoder = DetrDecoder(1, dict(self_attn_cfg=dict(attn), cross_attn_cfg=dict(attn),
                                  ffn_cfg=ffn))
    state = convert(params, 'irpe-detr')
    both = torch.nn.ModuleDict(dict(encoder=encoder, decoder=decoder))
    both.load_state_dict(state)
    both.eval()
    hw = tuple(rest['src'].shape[-2:])
    tokens, pos = (rest[name].flatten(2).transpose(1, 2) for name in ('src', 'pos'))
    mask = rest['mask'].flatten(1)
    with torch.no_grad():
        memory = encoder(tokens, pos, mask, spatial_shapes=[hw])
        query_pos = rest['query'].expand(len(tokens), -1, -1)
        states = decoder(torch.zeros_like(query_pos), key=memory, value=memory,
                         query_pos=query_pos, key_pos=pos, key_padding_mask=mask)
    assert mask.any()
    assert_released(memory, rest['memory'].flatten(2).transpose(1, 2))
    assert_released(states, rest['hs'])
