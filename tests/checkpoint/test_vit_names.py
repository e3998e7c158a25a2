"""Vision transformers under other names than timm's: a model of timm, its weights renamed as those
who publish them do, gives this project's model the same features."""
from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial

# Before timm: it provides torchvision's operators where they are not compiled.
import mmposenc  # noqa: F401

# isort: split
import pytest
import torch
from timm.layers import SwiGLUPacked
from timm.models.vision_transformer import VisionTransformer
from torch import Tensor, nn

from mmposenc.backbones import ViT
from mmposenc.checkpoint import convert_with_report, recognise

State = dict[str, Tensor]
TIMM = partial(VisionTransformer, img_size=32, patch_size=8, embed_dim=24, depth=3, num_heads=3,
               mlp_ratio=2, num_classes=5)
LEARNED = dict(type='LearnedPositionEmbedding')
OURS = partial(ViT, img_size=32, patch_size=8, embed_dims=24, num_layers=3, num_heads=3,
               mlp_ratio=2, pool=None, class_token=True, pos_encoding=LEARNED)
SCALED = dict(layer_scale_init_value=1.0)


def renamed(state: State, *rules: tuple[str, str]) -> State:
    """Each name by all rules in turn."""
    out = {}
    for name, value in state.items():
        for pattern, new in rules:
            name = re.sub(pattern, new, name)
        out[name] = value
    return out


def apart(state: State, *names: str) -> State:
    """Queries, keys and values as three tensors in the place of ``qkv``."""
    out = {}
    for name, value in state.items():
        parts = value.chunk(3) if 'qkv' in name else (value,)
        out |= ({name.replace('qkv', new): part for new, part in zip(names, parts, strict=True)}
                if len(parts) == 3 else {name: value})
    return out


def dinov2(state: State) -> State:
    state.pop('head.weight'), state.pop('head.bias')
    state = renamed(state, ('reg_token', 'register_tokens'))
    return {**state, 'mask_token': torch.zeros(1, 24)}


def chunked(state: State) -> State:
    """As a training with FSDP leaves it, in two chunks."""
    state = renamed(dinov2(state), (r'blocks\.([01])\.', r'blocks.0.\1.'),
                    (r'blocks\.2\.', 'blocks.1.2.'), (r'fc1\.', 'w12.'), (r'fc2\.', 'w3.'))
    return {f'teacher.backbone.{name}': value for name, value in state.items()} | {
        'teacher.dino_head.mlp.0.weight': torch.zeros(2, 2)}


HF = ((r'^blocks\.(\d+)\.', r'dinov2.encoder.layer.\1.'),
      ('ls([12]).gamma', r'layer_scale\1.lambda1'), ('attn.proj', 'attention.output.dense'),
      ('^patch_embed.proj', 'dinov2.embeddings.patch_embeddings.projection'),
      ('^(cls_token)', r'dinov2.embeddings.\1'),
      ('^pos_embed', 'dinov2.embeddings.position_embeddings'), ('^norm', 'dinov2.layernorm'),
      ('^reg_token', 'dinov2.embeddings.register_tokens'))


def hf_dinov2(state: State) -> State:
    state = apart(state, 'a.query', 'a.key', 'a.value')
    state['head.weight'] = torch.zeros(5, 48)  # class token and mean of the patches
    return renamed(state, ('attn.a.', 'attention.attention.'), *HF, ('head', 'classifier'),
                   ('mlp.fc1', 'mlp.weights_in'), ('mlp.fc2', 'mlp.weights_out')) | {
        'dinov2.embeddings.mask_token': torch.zeros(1, 24)}


def hf_vit(state: State) -> State:
    state = apart(state, 'a.query', 'a.key', 'a.value')
    return renamed(state, ('attn.a.', 'attention.attention.'), *HF, ('dinov2', 'vit'),
                   (r'(\d+)\.norm1', r'\1.layernorm_before'),
                   (r'(\d+)\.norm2', r'\1.layernorm_after'),
                   ('mlp.fc1', 'intermediate.dense'), ('mlp.fc2', 'output.dense'),
                   ('^head', 'classifier')) | {'vit.pooler.dense.bias': torch.zeros(24)}


def hf_clip(state: State) -> State:
    state.pop('head.weight'), state.pop('head.bias')
    if 'cls_token' in state:
        state['cls_token'] = state['cls_token'][0, 0]
    state['pos_embed'] = state['pos_embed'][0]
    state = apart(state, 'q_proj', 'k_proj', 'v_proj')
    state = renamed(state, (r'^blocks\.(\d+)\.norm', r'encoder.layers.\1.layer_norm'),
                    ('^blocks', 'encoder.layers'), ('attn.proj', 'attn.out_proj'),
                    (r'\.attn\.', '.self_attn.'),
                    ('^cls_token', 'embeddings.class_embedding'), ('^norm_pre', 'pre_layrnorm'),
                    ('^norm', 'post_layernorm'),
                    ('^pos_embed', 'embeddings.position_embedding.weight'),
                    ('^patch_embed.proj', 'embeddings.patch_embedding'), ('^attn_pool', 'head'))
    return {f'vision_model.{name}': value for name, value in state.items()} | {
        'text_model.encoder.layers.0.self_attn.q_proj.weight': torch.zeros(2, 2),
        'logit_scale': torch.zeros(1)}


def clip(state: State) -> State:
    state.pop('head.weight'), state.pop('head.bias')
    state['cls_token'], state['pos_embed'] = state['cls_token'][0, 0], state['pos_embed'][0]
    state = renamed(state, (r'^blocks\.(\d+)\.norm', r'transformer.resblocks.\1.ln_'),
                    ('^blocks', 'transformer.resblocks'),
                    (r'qkv\.', 'in_proj_'), ('attn.proj', 'attn.out_proj'), ('mlp.fc1', 'mlp.c_fc'),
                    ('mlp.fc2', 'mlp.c_proj'), ('cls_token', 'class_embedding'),
                    ('pos_embed', 'positional_embedding'),
                    ('norm_pre', 'ln_pre'), ('^norm', 'ln_post'), ('patch_embed.proj', 'conv1'))
    return {f'visual.{name}': value for name, value in state.items()} | {
        'visual.proj': torch.zeros(24, 8), 'token_embedding.weight': torch.zeros(2, 2),
        'positional_embedding': torch.zeros(7, 2),
        'transformer.resblocks.0.mlp.c_fc.weight': torch.zeros(2, 2)}


def in_open_clip(state: State) -> State:
    state.pop('head.weight'), state.pop('head.bias')
    return {f'visual.trunk.{name}': value for name, value in state.items()} | {
        'visual.head.proj.weight': torch.zeros(2, 2),
        'text.token_embedding.weight': torch.zeros(2, 2)}


def mae(state: State) -> State:
    state.pop('head.weight'), state.pop('head.bias')
    return state | {'mask_token': torch.zeros(1, 1, 8), 'decoder_embed.weight': torch.zeros(8, 24)}


CLIP = dict(pre_norm=True, norm_layer=partial(nn.LayerNorm, eps=1e-5), act_layer='quick_gelu')
OUR_CLIP = dict(pre_norm=True, norm_eps=1e-5, act='quick_gelu')
SWIGLU = dict(mlp_layer=SwiGLUPacked, act_layer=nn.SiLU, init_values=1.0)
#: How names are changed, the source, arguments of timm's model and of ours, what is dropped.
CASES: dict[str, tuple[Callable[[State], State], str, dict, dict, set[str]]] = {
    'dinov2': (dinov2, 'dinov2', dict(init_values=1.0), SCALED, {'mask_token'}),
    'dinov2-giant, of FSDP': (chunked, 'dinov2', SWIGLU, dict(
        SCALED, mlp='swiglu', mlp_hidden_dims=24),
        {'teacher.backbone.mask_token', 'teacher.dino_head.mlp.0.weight'}),
    'mae': (mae, 'deit', {}, {}, {'mask_token', 'decoder_embed.weight'}),
    'hf dinov2-giant': (hf_dinov2, 'huggingface-vit', SWIGLU, dict(
        SCALED, mlp='swiglu', mlp_hidden_dims=24),
        {'dinov2.embeddings.mask_token', 'classifier.weight', 'classifier.bias'}),
    'hf vit': (hf_vit, 'huggingface-vit', {}, {}, {'vit.pooler.dense.bias'}),
    'hf clip': (hf_clip, 'huggingface-clip', CLIP, OUR_CLIP, {
        'text_model.encoder.layers.0.self_attn.q_proj.weight', 'logit_scale'}),
    'hf siglip': (hf_clip, 'huggingface-clip', dict(
        class_token=False, act_layer='gelu_tanh', global_pool='avg', fc_norm=False),
        dict(class_token=False, act='gelu_tanh'), {
        'text_model.encoder.layers.0.self_attn.q_proj.weight', 'logit_scale'}),
    'clip': (clip, 'clip', CLIP, OUR_CLIP, {
        'visual.proj', 'token_embedding.weight', 'positional_embedding',
        'transformer.resblocks.0.mlp.c_fc.weight'}),
    'open_clip of timm': (in_open_clip, 'clip', {}, {}, {
        'visual.head.proj.weight', 'text.token_embedding.weight'}),
}


def random_weights(model: nn.Module) -> nn.Module:
    generator = torch.Generator().manual_seed(0)
    for parameter in model.parameters():
        parameter.data = torch.randn(parameter.shape, generator=generator).double() * 0.3
    return model.eval()


def load(model: nn.Module, converted: State) -> nn.Module:
    own = {name.removeprefix('backbone.'): value for name, value in converted.items()
           if name.startswith('backbone.')}
    model.double().load_state_dict(own)
    return model.eval()


@pytest.mark.parametrize('case', CASES)
def test_features_are_timms(case) -> None:
    rename, source, theirs, ours, dropped = CASES[case]
    reference = random_weights(TIMM(**theirs))
    state = rename(dict(reference.state_dict()))
    assert recognise(state) == source
    converted = convert_with_report(state, source)
    assert set(converted.dropped) == dropped and all(converted.dropped.values())
    model = load(OURS(**ours), converted.state_dict)
    x = torch.randn(2, 3, 32, 32, dtype=torch.float64)
    tokens = reference.forward_features(x)[:, reference.num_prefix_tokens:]
    torch.testing.assert_close(model(x)[0].flatten(2).mT, tokens, rtol=0, atol=1e-10)


@pytest.mark.parametrize('hf', [False, True])
def test_registers_with_a_row_of_the_class_token(hf) -> None:
    """DINOv2's files have one; timm's models have none, and it is added to the token."""
    reference = random_weights(TIMM(init_values=1.0, reg_tokens=4, no_embed_class=True))
    state = dict(reference.state_dict())
    row = torch.randn(1, 1, 24, dtype=torch.float64)
    state['cls_token'] = state['cls_token'] - row
    state['pos_embed'] = torch.cat((row, state['pos_embed']), 1)
    state = hf_dinov2(state) if hf else dinov2(state)
    if hf:
        state = renamed(state, ('weights_in', 'fc1'), ('weights_out', 'fc2'))
    converted = convert_with_report(state, recognise(state)).state_dict
    model = load(OURS(**SCALED, register_tokens=4,
                      pos_encoding=dict(**LEARNED, num_prefix_embeds=1)), converted)
    x = torch.randn(2, 3, 32, 32, dtype=torch.float64)
    tokens = reference.forward_features(x)[:, 5:]
    torch.testing.assert_close(model(x)[0].flatten(2).mT, tokens, rtol=0, atol=1e-10)
    back = mmposenc.checkpoint.convert_back(converted).state_dict
    for name, value in reference.state_dict().items():
        if not name.startswith('head'):
            torch.testing.assert_close(back[name], value, rtol=0, atol=1e-14)


def test_heads_of_hugging_face_that_take_the_class_token_are_kept() -> None:
    reference = random_weights(TIMM())
    converted = convert_with_report(hf_vit(dict(reference.state_dict())), 'huggingface-vit')
    assert torch.equal(converted.state_dict['head.fc.weight'], reference.head.weight)


def test_pooling_heads_of_timm_are_dropped() -> None:
    for pool in ('avg', 'map'):
        state = TIMM(global_pool=pool).state_dict()
        dropped = convert_with_report(state, recognise(state)).dropped
        assert dropped and all(name.startswith(('fc_norm', 'attn_pool')) for name in dropped)
