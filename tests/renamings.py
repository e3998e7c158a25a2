"""Models of timm, and how those who publish their weights name them."""
from __future__ import annotations

import re
from functools import partial

# Before timm: it provides torchvision's operators where they are not compiled.
import mmposenc  # noqa: F401

# isort: split
import torch
from timm.layers import SwiGLUPacked
from timm.models.eva import Eva
from timm.models.pvt_v2 import PyramidVisionTransformerV2
from timm.models.swin_transformer import SwinTransformer
from timm.models.swin_transformer_v2 import SwinTransformerV2
from timm.models.vision_transformer import VisionTransformer
from timm.models.vision_transformer_sam import VisionTransformerSAM
from torch import Tensor, nn

State = dict[str, Tensor]
DIMS = 128
SIZES = dict(img_size=32, patch_size=16, embed_dim=DIMS, depth=3, num_heads=2, num_classes=0)


def renamed(state: State, *changes: tuple[str, str]) -> State:
    """Each name by all changes in turn: a pattern and what it becomes."""
    out = {}
    for name, value in state.items():
        for pattern, new in changes:
            name = re.sub(pattern, new, name)
        out[name] = value
    return out


def apart(state: State, *names: str) -> State:
    """Queries, keys and values as three tensors in the place of ``qkv``."""
    out: State = {}
    for name, value in state.items():
        parts = value.chunk(3) if 'qkv' in name else (value,)
        out |= ({name.replace('qkv', new): part for new, part in zip(names, parts, strict=True)}
                if len(parts) == 3 else {name: value})
    return out


def zeros(*names: str) -> State:
    return {name: torch.zeros(1, 2) for name in names}


def named(*changes: tuple[str, str], extra: tuple[str, ...] = ()):
    """Changes of names, and weights that a file has besides."""
    return lambda state: renamed(state, *changes) | zeros(*extra)


dinov2 = named(('reg_token', 'register_tokens'), extra=('mask_token',))


def chunked(state: State) -> State:
    """As a training with FSDP leaves it, in two chunks."""
    state = renamed(dinov2(state), (r'blocks\.([01])\.', r'blocks.0.\1.'),
                    (r'blocks\.2\.', 'blocks.1.2.'), (r'fc1\.', 'w12.'), (r'fc2\.', 'w3.'))
    return renamed(state, ('^', 'teacher.backbone.')) | zeros('teacher.dino_head.mlp.0.weight')


#: Of transformers' models.
HF = ((r'attn\.a\.', 'attention.attention.'), ('attn.proj', 'attention.output.dense'),
      (r'^blocks\.(\d+)\.', r'encoder.layer.\1.'), (r'ls([12]).gamma', r'layer_scale\1.lambda1'),
      ('^patch_embed.proj', 'embeddings.patch_embeddings.projection'),
      ('^(cls_token)', r'embeddings.\1'), ('^pos_embed', 'embeddings.position_embeddings'),
      ('^norm', 'layernorm'), ('^reg_token', 'embeddings.register_tokens'),
      ('^head', 'classifier'))
HF_BLOCK = ((r'(\d+)\.norm1', r'\1.layernorm_before'), (r'(\d+)\.norm2', r'\1.layernorm_after'),
            ('mlp.fc1', 'intermediate.dense'), ('mlp.fc2', 'output.dense'))


def hugging_face(kind: str, *more: tuple[str, str], extra: tuple[str, ...] = ()):
    """Under the name of a kind, all but a classifier; queries, keys and values apart."""
    def rename(state: State) -> State:
        state = renamed(apart(state, 'a.query', 'a.key', 'a.value'), *more, *HF,
                        (r'^(embeddings|encoder|layernorm|pooler)', rf'{kind}.\1'))
        return state | zeros(*extra)
    return rename


hf_dinov2 = hugging_face('dinov2', ('mlp.fc1', 'mlp.weights_in'), ('mlp.fc2', 'mlp.weights_out'),
                         extra=('dinov2.embeddings.mask_token', 'classifier.weight'))
hf_vit = hugging_face('vit', *HF_BLOCK, extra=('vit.pooler.dense.bias',))


def flat_tokens(state: State) -> State:
    """CLIP's class token is a vector, its table has no batch."""
    return {name: value[0, 0] if name == 'cls_token' else value[0] if name == 'pos_embed' else value
            for name, value in state.items()}


def hf_clip(state: State) -> State:
    state = renamed(apart(flat_tokens(state), 'q_proj', 'k_proj', 'v_proj'),
                    (r'^blocks\.(\d+)\.norm', r'encoder.layers.\1.layer_norm'),
                    ('^blocks', 'encoder.layers'), ('attn.proj', 'attn.out_proj'),
                    (r'\.attn\.', '.self_attn.'),
                    ('^cls_token', 'embeddings.class_embedding'), ('^norm_pre', 'pre_layrnorm'),
                    ('^norm', 'post_layernorm'),
                    ('^pos_embed', 'embeddings.position_embedding.weight'),
                    ('^patch_embed.proj', 'embeddings.patch_embedding'), ('^', 'vision_model.'))
    return state | zeros('text_model.encoder.layers.0.self_attn.q_proj.weight', 'logit_scale')


def clip(state: State) -> State:
    state = renamed(flat_tokens(state), (r'^blocks\.(\d+)\.norm', r'transformer.resblocks.\1.ln_'),
                    ('^blocks', 'transformer.resblocks'), (r'qkv\.', 'in_proj_'),
                    ('attn.proj', 'attn.out_proj'), ('mlp.fc1', 'mlp.c_fc'),
                    ('mlp.fc2', 'mlp.c_proj'), ('cls_token', 'class_embedding'),
                    ('pos_embed', 'positional_embedding'), ('norm_pre', 'ln_pre'),
                    ('^norm', 'ln_post'), ('patch_embed.proj', 'conv1'), ('^', 'visual.'))
    return state | zeros('visual.proj', 'token_embedding.weight', 'positional_embedding',
                         'transformer.resblocks.0.mlp.c_fc.weight')


open_clip = named(('^', 'visual.trunk.'),
                  extra=('visual.head.proj.weight', 'text.token_embedding.weight'))
deit_iii = named((r'ls([12])\.gamma', r'gamma_\1'))
mae = named(extra=('mask_token', 'decoder_embed.weight'))


def dinov3_release(state: State) -> State:
    """facebookresearch/dinov3: a masked bias of the keys, gates apart, parts of pretraining."""
    state = renamed(state, ('^reg_token', 'storage_tokens'), (r'gamma_(\d)', r'ls\1.gamma'))
    for name in [name for name in state if name.endswith('q_bias')]:
        block = name.removesuffix('q_bias')
        query, value = state.pop(name), state.pop(f'{block}v_bias')
        state[f'{block}qkv.bias'] = torch.cat((query, torch.randn(DIMS), value))
        state |= zeros(f'{block}qkv.bias_mask')
    if any('fc1_g' in name for name in state):
        state = renamed(state, ('fc1_g', 'w1'), ('fc1_x', 'w2'), ('fc2', 'w3'))
    return state | zeros('mask_token', 'rope_embed.periods', 'local_cls_norm.weight')


def dinov3_huggingface(state: State) -> State:
    """transformers' DINOv3ViTModel."""
    gated = any('fc1_g' in name for name in state)
    state = renamed(apart(state, 'q_proj', 'k_proj', 'v_proj'),
                    ('^cls_token', 'embeddings.cls_token'),
                    ('^reg_token', 'embeddings.register_tokens'),
                    (r'^patch_embed\.proj', 'embeddings.patch_embeddings'),
                    (r'gamma_(\d)', r'layer_scale\1.lambda1'), (r'attn\.proj', 'attn.o_proj'),
                    (r'([qv])_bias', r'\1_proj.bias'), (r'\.attn\.', '.attention.'),
                    ('fc1_g', 'gate_proj'), ('fc1_x' if gated else 'fc1', 'up_proj'),
                    ('fc2', 'down_proj'), (r'^blocks', 'layer'))
    return state | zeros('embeddings.mask_token')


def dinov3_renewed(state: State) -> State:
    """As newer versions of transformers name what a model holds."""
    return renamed(dinov3_huggingface(state), ('^layer', 'model.layer'))


swin_official = named(
    (r'^layers\.1\.downsample', 'layers.0.downsample'), (r'^head\.fc', 'head'),
    extra=('layers.0.blocks.1.attn_mask', 'layers.0.blocks.1.attn.relative_position_index'))


def hf_swin(kind: str):
    def rename(state: State) -> State:
        return renamed(
            apart(state, 'query', 'key', 'value'),
            (r'^patch_embed\.proj', 'embeddings.patch_embeddings.projection'),
            (r'^patch_embed\.', 'embeddings.'), (r'^norm', 'layernorm'),
            (r'attn\.(q|v)_bias', r'attn.\1.bias'), (r'attn\.q\.', 'attn.query.'),
            (r'attn\.v\.', 'attn.value.'), (r'attn\.proj', 'attention.output.dense'),
            (r'attn\.cpb_mlp', 'attn.continuous_position_bias_mlp'),
            (r'\.attn\.', '.attention.self.'), *HF_BLOCK,
            (r'^layers\.1\.downsample', 'layers.0.downsample'), (r'^layers', 'encoder.layers'),
            (r'^(?!head)', f'{kind}.'), (r'^head\.fc', 'classifier')) | zeros(
            f'{kind}.embeddings.mask_token',
            f'{kind}.encoder.layers.0.blocks.0.attention.self.relative_coords_table')
    return rename


def mm_swin(state: State) -> State:
    """Merging unfolds: channel, row, column."""
    for name in [name for name in state if '.downsample.' in name]:
        value = state[name]
        if value.shape[-1] == 4 * 12:
            state[name] = value.unflatten(-1, (2, 2, 12)).transpose(-1, -3).flatten(-3)
    return renamed(state, (r'^layers\.1\.downsample', 'layers.0.downsample'), ('^norm', 'norm1'),
                   (r'^patch_embed\.proj', 'patch_embed.projection'), (r'^layers', 'stages'),
                   (r'attn\.', 'attn.w_msa.'), (r'mlp\.fc1', 'ffn.layers.0.0'),
                   (r'mlp\.fc2', 'ffn.layers.1'), (r'^(?!head)', 'backbone.'))


def pvt_v2_release(state: State) -> State:
    """whai362/PVT and NVlabs/SegFormer: stages are counted from 1."""
    changes = [(r'^patch_embed\.', 'stages.0.downsample.'), ('dwconv', 'dwconv.dwconv')]
    for stage in range(4):
        changes += [(rf'^stages\.{stage}\.{theirs}', f'{name}{stage + 1}') for theirs, name in (
            ('downsample', 'patch_embed'), ('blocks', 'block'), ('norm', 'norm'))]
    return renamed(state, *changes)


def hf_segformer(*changes: tuple[str, str], key: str, value: str):
    def rename(state: State) -> State:
        state = renamed(state, (r'^patch_embed\.', 'stages.0.downsample.'),
                        (r'downsample\.norm', 'downsample.layer_norm'),
                        (r'^(stages\.\d)\.norm\.', r'\1.layer_norm.'), ('dwconv', 'dwconv.dwconv'),
                        ('^head', 'classifier'), *changes)
        parts = {name: tensor.chunk(2) for name, tensor in state.items() if '.attn.kv.' in name}
        state = {name: tensor for name, tensor in state.items() if name not in parts}
        for name, both in parts.items():
            state |= {name.replace('attn.kv', new): part
                      for new, part in zip((key, value), both, strict=True)}
        return renamed(state, (r'^(?!classifier)', 'segformer.'))
    return rename


HF_FILE = hf_segformer(
    (r'^stages\.(\d)\.downsample', r'encoder.patch_embeddings.\1'),
    (r'^stages\.(\d)\.blocks', r'encoder.block.\1'),
    (r'^stages\.(\d)\.layer_norm', r'encoder.layer_norm.\1'), (r'\.norm(\d)', r'.layer_norm_\1'),
    (r'attn\.norm', 'attention.self.layer_norm'), (r'attn\.proj', 'attention.output.dense'),
    (r'attn\.(q|sr)\.', r'attention.self.\1.'), (r'self\.q\.', 'self.query.'),
    (r'mlp\.fc', 'mlp.dense'), key='attention.self.key', value='attention.self.value')
HF_MODEL = hf_segformer(
    (r'\.downsample', '.patch_embeddings'), (r'\.norm1', '.layernorm_before'),
    (r'\.norm2', '.layernorm_after'), (r'attn\.q\.', 'attention.q_proj.'),
    (r'attn\.proj', 'attention.o_proj'),
    (r'attn\.sr', 'attention.sequence_reduction.sequence_reduction'),
    (r'attn\.norm', 'attention.sequence_reduction.layer_norm'),
    key='attention.k_proj', value='attention.v_proj')
SAM_LIN = (r'mlp\.fc', 'mlp.lin')
SAM_HF = ((r'^patch_embed\.proj', 'patch_embed.projection'), (r'^blocks', 'layers'),
          (r'\.norm', '.layer_norm'), SAM_LIN, (r'neck\.0', 'neck.conv1'),
          (r'neck\.1', 'neck.layer_norm1'), (r'neck\.2', 'neck.conv2'),
          (r'neck\.3', 'neck.layer_norm2'))


VITS = partial(VisionTransformer, **SIZES)
SCALED = partial(VITS, init_values=1.0)
GIANT = partial(SCALED, mlp_layer=SwiGLUPacked, act_layer=nn.SiLU)
CLIP = partial(VITS, pre_norm=True)
SIGLIP = partial(VITS, class_token=False, global_pool='avg', fc_norm=False)
EVA = partial(Eva, **SIZES, use_rot_pos_emb=True)
DINOV3 = partial(EVA, rope_type='dinov3', rope_rotate_half=True, num_reg_tokens=4,
                 use_abs_pos_emb=False, use_fc_norm=False, init_values=1.0)
GATED = partial(DINOV3, swiglu_mlp=True, swiglu_align_to=8)
SWIN = dict(img_size=32, patch_size=4, embed_dim=12, depths=(2, 1), num_heads=(2, 4),
            window_size=4, num_classes=5)
V1, V2 = partial(SwinTransformer, **SWIN), partial(SwinTransformerV2, **SWIN)
SAMS = partial(VisionTransformerSAM, **dict(SIZES, patch_size=4), use_rel_pos=True, window_size=3,
               global_attn_indexes=(1,), neck_chans=6)
TEXT = r'visual\.proj|(token_|position|transformer).*'
HF_TEXT = r'text_model\..*|logit_scale'
PRETRAINING = r'.*(mask|periods|local_cls).*'
SWIN_BUFFERS = r'.*(attn_mask|position_index|coords_table|mask_token)'
PVT_V2 = partial(PyramidVisionTransformerV2, depths=(1, 2, 1, 1), embed_dims=(8, 8, 16, 16),
                 num_heads=(1, 1, 2, 2), mlp_ratios=(2, 2, 2, 2), num_classes=5)
#: timm's model, how its names are changed, the source, and which names are dropped.
CASES = {
    'dinov2': (SCALED, dinov2, 'dinov2', 'mask_token'),
    'dinov2-reg': (partial(SCALED, reg_tokens=4, no_embed_class=True), dinov2, 'dinov2',
                   'mask_token'),
    'dinov2-giant, of FSDP': (GIANT, chunked, 'dinov2', r'.*(mask_token|dino_head.*)'),
    'deit iii': (partial(SCALED, no_embed_class=True), deit_iii, 'deit', 'none'),
    'mae': (VITS, mae, 'deit', 'mask_token|decoder_embed.*'),
    'hf dinov2-giant': (GIANT, hf_dinov2, 'huggingface-vit', r'.*mask_token|classifier.*'),
    'hf vit': (partial(VITS, num_classes=5), hf_vit, 'huggingface-vit', 'vit.pooler.*'),
    'hf clip': (CLIP, hf_clip, 'huggingface-clip', HF_TEXT),
    'hf siglip': (SIGLIP, hf_clip, 'huggingface-clip', HF_TEXT),
    'clip': (CLIP, clip, 'clip', TEXT),
    'open_clip of timm': (VITS, open_clip, 'clip', r'visual\.head.*|text.*'),
    **{f'dinov3 {name}, {kind}': (model, rename, 'eva', PRETRAINING)
       for kind, model in (('', DINOV3), ('no bias', partial(DINOV3, qkv_bias=False)),
                           ('gated', GATED))
       for name, rename in (
           ('release', dinov3_release), ('huggingface', dinov3_huggingface),
           ('newer huggingface', dinov3_renewed))},
    **{f'pvt v2 {name}': (PVT_V2, rename, source, '') for name, rename, source in (
        ('release', pvt_v2_release, 'pvt'), ('of a file', HF_FILE, 'huggingface-segformer'),
        ('of a model', HF_MODEL, 'huggingface-segformer'))},
    **{f'swin {version}{name}': (model, rename, source, SWIN_BUFFERS)
       for version, model, kind in (('v1', V1, 'swin'), ('v2', V2, 'swinv2'))
       for name, rename, source in (('', swin_official, 'swin'), (', hf', hf_swin(kind), 'swin'),
                                    (', openmmlab', mm_swin, 'mmpretrain-swin'))},
    'sam': (SAMS, named((r'^', 'image_encoder.'), SAM_LIN, extra=(
        'prompt_encoder.pe_layer.positional_encoding_gaussian_matrix',
        'mask_decoder.mask_tokens.weight')), 'sam', r'(prompt|mask).*'),
    'sam, its encoder alone': (SAMS, named(SAM_LIN), 'sam', 'none'),
    'hf sam': (SAMS, named(*SAM_HF, ('^', 'vision_encoder.'), extra=(
        'shared_image_embedding.positional_embedding', 'mask_decoder.mask_tokens.weight')), 'sam',
        '(shared|mask).*'),
    'vitdet of detectron2': (SAMS, named(('^', 'backbone.net.'), extra=(
        'backbone.simfp_2.0.weight', 'roi_heads.box_head.fc1.weight')), 'sam', '.*(simfp|roi).*'),
    'vitdet of mmdet': (SAMS, named(('^', 'backbone.'), extra=(
        'neck.fpn1.0.weight', 'rpn_head.rpn_conv.0.conv.weight')), 'sam', '(neck|rpn).*'),
}
