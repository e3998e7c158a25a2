"""DINOv3, EVA-02 and RoPE-ViT under the names of their releases and of Hugging Face become what the
same weights under timm's names become."""
import re
from functools import partial

import pytest
import torch
from torch import nn

import mmposenc  # noqa: F401  (before timm: it provides torchvision's operators)
from mmposenc.backbones import ViT, checkpoints, load_pretrained
from mmposenc.checkpoint import convert, convert_with_report, needed_options, recognise
from mmposenc.commands.convert import main

timm = pytest.importorskip('timm')
from timm.models.eva import Eva  # noqa: E402

DINOV3 = dict(rope_type='dinov3', rope_rotate_half=True, num_reg_tokens=4, use_abs_pos_emb=False,
              use_fc_norm=False, init_values=1.0)
GATED = dict(swiglu_mlp=True, swiglu_align_to=8)
EVA02 = dict(swiglu_mlp=True, ref_feat_shape=(16, 16), use_fc_norm=False)
ROPE_VIT = dict(attn_type='rope', init_values=1.0, use_abs_pos_emb=False, use_fc_norm=False)


def timm_state(**options):
    """Random weights of a small model, heads of 64 channels."""
    torch.manual_seed(0)
    model = Eva(img_size=32, patch_size=16, embed_dim=128, depth=2, num_heads=2, num_classes=0,
                use_rot_pos_emb=True, **options)
    for parameter in model.parameters():
        nn.init.normal_(parameter)
    return model.state_dict()


def renamed(state, *changes):
    """By pairs of a pattern and what it becomes, every one of which has something to do."""
    for pattern, target in changes:
        assert any(re.search(pattern, name) for name in state), pattern
        state = {re.sub(pattern, target, name): value for name, value in state.items()}
    return state


def dinov3_release(state):
    """facebookresearch/dinov3: a masked bias of the keys, gates apart, parts of pretraining."""
    state = renamed(state, ('^reg_token', 'storage_tokens'), (r'gamma_(\d)', r'ls\1.gamma'))
    for name in [name for name in state if name.endswith('q_bias')]:
        block = name.removesuffix('q_bias')
        query, value = state.pop(name), state.pop(f'{block}v_bias')
        state[f'{block}qkv.bias'] = torch.cat((query, torch.randn(128), value))
        mask = torch.ones(3, 128)
        mask[1] = 0
        state[f'{block}qkv.bias_mask'] = mask.flatten()
    if any('fc1_g' in name for name in state):
        state = renamed(state, ('fc1_g', 'w1'), ('fc1_x', 'w2'), ('fc2', 'w3'))
    return {**state, 'mask_token': torch.zeros(1, 128), 'rope_embed.periods': torch.rand(16),
            **{f'local_cls_norm.{part}': torch.rand(128) for part in ('weight', 'bias')}}


def dinov3_huggingface(state):
    """transformers' DINOv3ViTModel: queries, keys and values apart."""
    state = renamed(state, ('^(cls_token)', r'embeddings.\1'),
                    ('^reg_token', 'embeddings.register_tokens'),
                    (r'^patch_embed\.proj', 'embeddings.patch_embeddings'),
                    (r'gamma_(\d)', r'layer_scale\1.lambda1'), (r'attn\.proj', 'attention.o_proj'))
    for name in [name for name in state if name.endswith('qkv.weight')]:
        block = name.removesuffix('attn.qkv.weight')
        for part, value in zip('qkv', state.pop(name).chunk(3), strict=True):
            state[f'{block}attention.{part}_proj.weight'] = value
        for part in 'qv':
            if f'{block}attn.{part}_bias' in state:
                state[f'{block}attention.{part}_proj.bias'] = state.pop(f'{block}attn.{part}_bias')
    gates = (('fc1_g', 'gate_proj'), ('fc1_x', 'up_proj'))
    gated = any('fc1_g' in name for name in state)
    state = renamed(state, *(gates if gated else (('fc1', 'up_proj'),)), ('fc2', 'down_proj'),
                    (r'^blocks', 'layer'))
    return {**state, 'embeddings.mask_token': torch.zeros(1, 1, 128)}


def eva02_release(state):
    """baaivision/EVA: angles as buffers, other names in the MLP."""
    if any('fc1_g' in name for name in state):
        state = renamed(state, ('fc1_g', 'w1'), ('fc1_x', 'w2'), (r'mlp\.norm', 'mlp.ffn_ln'),
                        (r'([qv])_proj\.bias', r'\1_bias'))
    else:
        state = renamed(state, ('fc1', 'w12'))
    state = renamed(state, ('fc2', 'w3'))
    if any('attn.norm' in name for name in state):
        state = renamed(state, (r'attn\.norm', 'attn.inner_attn_ln'))
    angles = {f'{prefix}rope.freqs_{part}': torch.rand(4, 64) for part in ('cos', 'sin')
              for prefix in ('', 'blocks.0.attn.', 'blocks.1.attn.')}
    return {**state, **angles, 'mask_token': torch.zeros(1, 1, 128),
            'lm_head.weight': torch.rand(8, 128), 'lm_head.bias': torch.rand(8)}


def rope_vit_release(state):
    """naver-ai/rope-vit: frequencies of all heads in one row."""
    state = dict(state)
    if 'rope.freqs' in state:
        state['freqs'] = state.pop('rope.freqs').flatten(2)
        state |= {'freqs_t_x': torch.arange(4.0), 'freqs_t_y': torch.arange(4.0)}
    return state


CASES = {
    'dinov3 release': (dinov3_release, dict(DINOV3)),
    'dinov3 release, no bias': (dinov3_release, dict(DINOV3, qkv_bias=False)),
    'dinov3 release, gated': (dinov3_release, dict(DINOV3, **GATED)),
    'dinov3 huggingface': (dinov3_huggingface, dict(DINOV3)),
    'dinov3 huggingface, no bias': (dinov3_huggingface, dict(DINOV3, qkv_bias=False)),
    'dinov3 huggingface, gated': (dinov3_huggingface, dict(DINOV3, **GATED)),
    'eva02 release, packed': (eva02_release, dict(EVA02)),
    'eva02 release': (eva02_release, dict(EVA02, qkv_fused=False, scale_mlp=True)),
    'eva02 clip release': (eva02_release, dict(EVA02, qkv_fused=False, scale_mlp=True,
                                               scale_attn_inner=True)),
    'rope-vit release, axial': (rope_vit_release, dict(ROPE_VIT)),
    'rope-vit release, mixed': (rope_vit_release, dict(ROPE_VIT, rope_type='mixed')),
}


@pytest.mark.parametrize('case', CASES)
def test_other_names_are_the_same_weights(case):
    rename, options = CASES[case]
    state = timm_state(**options)
    other = rename(state)
    expected = convert(state, 'eva')
    for prefix in ('', 'module.'):
        assert recognise(prefix + name for name in other) == 'eva'
    if 'huggingface' in case:  # as newer versions of transformers name what a model holds
        newer = {f'model.{name}' if name.startswith('layer') else name: value
                 for name, value in other.items()}
        assert recognise(newer) == 'eva'
        assert convert(newer, 'eva').keys() == expected.keys()
    converted = convert_with_report(other, 'eva')
    assert converted.state_dict.keys() == expected.keys()
    for name, value in converted.state_dict.items():
        assert torch.equal(value, expected[name]), name
    assert all(converted.dropped.values())
    assert converted.dropped.keys() == {
        name for name in other if re.search('mask|periods|local_cls|lm_head|freqs_', name)}


def test_a_file_becomes_a_model():
    """By init_cfg's road, told by its names alone."""
    for case, arch, options in (
            ('dinov3 huggingface', 'dinov3-small', {}),
            ('dinov3 release, gated', 'dinov3-small-plus', dict(mlp_hidden_dims=512)),
            ('eva02 release', 'eva02-base', dict(mlp_hidden_dims=512)),
            ('rope-vit release, mixed', 'rope-vit-base-mixed', {})):
        rename, kwargs = CASES[case]
        state = timm_state(**kwargs)
        ours = ViT(arch, embed_dims=128, num_layers=2, num_heads=2, patch_size=16, img_size=32,
                   pool=None, **options)
        load_pretrained(ours, {'model': rename(state)})
        assert torch.equal(ours.blocks[1].attn.qkv.weight,
                           convert(state, 'eva')['backbone.blocks.1.attn.qkv.weight'])


@pytest.mark.parametrize('rounded', [True, False])
def test_periods_of_dinov3s_release_are_rounded(rounded, monkeypatch, tmp_path, capsys):
    """By the documented option, a part of the arch's encoding, features are those of the file's
    periods; without it a warning names it. Periods that are exact need nothing."""
    theirs = Eva(img_size=32, patch_size=16, embed_dim=128, depth=2, num_heads=2, num_classes=0,
                 use_rot_pos_emb=True, rope_temperature=100, dynamic_img_size=True,
                 norm_layer=partial(nn.LayerNorm, eps=1e-5), **DINOV3).double().eval()
    for parameter in theirs.parameters():
        nn.init.normal_(parameter, std=0.3)
    if rounded:
        theirs.rope.periods = theirs.rope.periods.bfloat16().to(theirs.rope.periods)
    state = dinov3_release(dict(theirs.state_dict())) | {'rope_embed.periods': theirs.rope.periods}
    said = []
    monkeypatch.setattr(checkpoints, 'print_log', lambda text, *_: said.append(text))
    x = torch.randn(1, 3, 64, 96, dtype=torch.float64)
    expected = theirs.forward_features(x)[:, 5:].mT.unflatten(2, (4, 6)).detach()
    errors = []
    for rounds in (rounded, not rounded):
        ours = ViT('dinov3-small', embed_dims=128, num_layers=2, num_heads=2, pool=None,
                   rel_pos_encoding=dict(round_periods=rounds)).double().eval()
        load_pretrained(ours, {'model': state})
        errors.append(float((ours(x)[0].detach() - expected).abs().max() / expected.std()))
    assert errors[0] < 1e-6 < 1e-4 < errors[1], errors
    option = 'rel_pos_encoding.round_periods=True'
    assert len(said) == rounded and all(option in text for text in said)
    torch.save(state, tmp_path / 'in.pth')
    main(['auto', str(tmp_path / 'in.pth'), str(tmp_path / 'out.pth')])
    assert (f'model.backbone.{option}' in capsys.readouterr().out) == rounded


def test_needs():
    """The arch, and where the file is another than the arch."""
    with torch.device('meta'):
        big = timm.create_model('eva02_large_patch14_448', num_classes=5)
        clip = timm.create_model('eva02_base_patch16_clip_224', num_classes=0)
        dinov3 = timm.create_model('vit_small_plus_patch16_dinov3')
        others = [timm.create_model(name) for name in (
            'beit_base_patch16_224', 'deit3_small_patch16_224', 'vit_relpos_small_patch16_224')]
    assert needed_options(convert(clip.state_dict(), 'eva')) == [
        'model.backbone.arch=eva02-base', 'model.backbone.patch_size=16',
        'model.backbone.attn_norm=True', 'model.backbone.pool=cls',
        'model.backbone.final_norm=True']
    assert needed_options(convert(dinov3.state_dict(), 'eva')) == [
        'model.backbone.arch=dinov3-small-plus', 'model.backbone.qkv_bias=False']
    assert needed_options(convert(big.state_dict(), 'eva'))[:2] == [
        'model.backbone.arch=eva02-large', 'model.backbone.img_size=448']
    for model in others:
        state = model.state_dict()
        needs = needed_options(convert(state, recognise(state)))
        assert not re.search('dinov3|eva|rope', str(needs))


def test_bad_input():
    state = timm_state(**DINOV3)
    with pytest.raises(ValueError, match="source='eva' has no rule for 1 of .*blocks.0.attn.gate"):
        convert({**state, 'blocks.0.attn.gate.weight': torch.zeros(1)}, 'eva')
    apart = dinov3_huggingface(state)
    del apart['layer.1.attention.k_proj.weight']
    with pytest.raises(ValueError, match='is there without blocks.1.attn.k_proj.weight'):
        convert(apart, 'eva')
