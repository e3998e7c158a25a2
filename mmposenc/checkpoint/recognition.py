"""Recognises the source of a state dict by its names, and refuses networks without a converter."""
from __future__ import annotations

import re
from collections.abc import Iterable

SUPPORTED = ('supported are files of DeiT, DeiT III, MAE, DINO, DINOv2, DINOv3, CLIP, SigLIP, SAM, '
             'ViTDet, iRPE-DeiT, PVT, PVT v2, SegFormer, Twins, Swin, DETR, iRPE-DETR, '
             "Deformable DETR and RT-DETR, and timm's of the models that docs/weights.md lists")

#: Pairs of a pattern that only names in files of one source match, and that source. They decide,
#: whatever else the file holds.
_MARKS = (
    (r'upscale_block\.block\.0\.conv1\.weight|network\.upscale\.0\.conv1\.weight', 'eomt'),
    # Files saved by FSDP hold blocks in chunks, as Twins does; Twins has no layer scale.
    (r'(teacher\.)?(backbone\.)?blocks\.\d+\.\d+\.ls1\.gamma', 'dinov2'),
    (r'(?:blocks\.\d+\.attn|rel_pos_bias)\.relative_position_bias_table', 'beit'),
    (r'(?:blocks\.\d+\.attn\.|shared_)rel_pos\..*', 'relpos'),
    (r'embeds\.proj\.weight', 'naflex'),
    (r'(.*\.)?blocks\.\d+\.mlp\.linear_fc1\.weight|(encoder\.)?merger\.fc1\.weight|'
     r'encoder\.pos_embed', 'qwen3'),
    (r'storage_tokens|(model\.)?layer\.\d+\.attention\.q_proj\.weight|rope\.freqs|'
     r'blocks\.\d+\.attn\.[qk]_proj\.weight', 'eva'),
)
#: The same as :data:`_MARKS` for the plain vision transformers of mmseg and mmpretrain, some of
#: whose buffers have names that mark other sources.
_OPENMMLAB = (
    (r'channel_reduction\.0\.weight|layers\.\d+\.attn\.rel_pos_h', 'sam'),
    (r'layers\.\d+\.(ln1|mlp\.w12)\.weight', 'mm-vit'),
)
#: Models of which only timm's files load: a pattern that names in other files match, what such
#: files are, and one of timm's models.
_ONLY_OF_TIMM = (
    (r'(.*\.)?rope\.freqs_(cos|sin)', "EVA-02's release", 'eva02_base_patch14_224.mim_in22k'),
    (r'freqs(_t_[xy])?', "RoPE-ViT's release", 'vit_base_patch16_rope_mixed_224.naver_in1k'),
    (r'(blocks\.\d+\.attn|rel_pos_bias)\.relative_position_index|'
     r'(.*\.)?relative_position_bias\.relative_position_bias_table|'
     r'(.*\.)?encoder\.layer\.\d+\.lambda_1',
     "BEiT or Data2Vec from elsewhere than timm", 'beit_base_patch16_224.in22k_ft_in22k_in1k'),
)
#: Pairs of a pattern that names in files of a source match, and the source; the first match
#: decides.
_SIGNS = (
    (r'transformer\.level_embed', 'deformable-detr'),
    (r'conv1\.conv1_1\.conv\.weight', 'rt-detr'),
    (r'model\.backbone\.model\.embedder\.embedder\.0\.convolution\.weight',
     'huggingface-rt-detr'),
    (r'transformer\.decoder\.layers\.0\.multihead_attn\.in_proj_weight', 'irpe-detr'),
    (r'(?:image_encoder\.|vision_encoder\.|net\.)?(?:blocks|layers)\.\d+\.attn\.rel_pos_h', 'sam'),
    (r'patch_embed1\.proj\.weight', 'pvt'),
    (r'patch_embeds\.0\.proj\.weight', 'twins'),
    (r'patch_embeds\.0\.projection\.weight', 'mm-twins'),
    (r'stages\.0\.blocks\.0\.mlp\.dwconv\.weight', 'timm-pvt-v2'),
    (r'(segformer\.)?(encoder\.patch_embeddings\.0|stages\.0\.patch_embeddings)\.proj\.weight',
     'huggingface-segformer'),
    (r'layers\.0\.0\.projection\.weight', 'mmdet-pvt'),
    (r'layers\.\d\.blocks\.\d+\.attn\.qkv\.weight', 'swin'),
    (r'(swin(v2)?\.)?encoder\.layers\.\d\.blocks\.\d+\.attention\.self\.query\.weight', 'swin'),
    (r'stages\.\d\.blocks\.\d+\.ffn\.layers\.0\.0\.weight', 'mmpretrain-swin'),
    (r'blocks\.\d+\.attn\.rpe_[qkv]\..*', 'irpe-deit'),
    (r'blocks\.\d+\.(attn\.q_bias|mlp\.fc1_g\.weight)', 'eva'),
    (r'(.*\.)?embeddings\.patch_embedding\.weight', 'huggingface-clip'),
    (r'(.*\.)?(encoder\.layer|layers)\.\d+\.attention\.(attention\.query|q_proj)\.weight',
     'huggingface-vit'),
    (r'(visual\.)?class_embedding|visual\.trunk\.patch_embed\.proj\.weight', 'clip'),
    (r'decoder_embed\.weight', 'deit'),  # MAE has a mask token, as DINOv2 does.
    (r'(teacher\.)?(backbone\.|vision_encoder\.)?mask_token', 'dinov2'),
    (r'patch_embed\.proj\.weight', 'deit'),
)


def recognise(names: Iterable[str]) -> str | None:
    """The source whose names these are, a key of ``SOURCES``; None for this project's own and any
    others.

    Args:
        names: of a state dict, with or without 'backbone.' or 'module.' before all or some of them.

    Raises:
        ValueError: for a network that is close to a supported one and is not it, with what parts
            them and what is supported; for one that loads in timm's names alone, with a name.
    """
    plain = [name.removeprefix('module.') for name in names]
    # The file is not a DETR's release.
    if not any(name.startswith('transformer.') for name in plain):
        inner = [name.removeprefix('backbone.') for name in plain if name.startswith('backbone.')]
        plain = inner or plain
    of_openmmlab = _first(_OPENMMLAB, plain)
    is_own_vit = {'patch_embed.projection.weight', 'blocks.0.norm1.weight'} <= set(plain)
    if of_openmmlab or is_own_vit:
        return of_openmmlab
    for pattern, who, of_timm in _ONLY_OF_TIMM:
        if _has(pattern, plain):
            raise ValueError(f"these are weights of {who}, which load in timm's names alone: give "
                             f"checkpoint='timm://{of_timm}', or another of timm's models of them")
    if marked := _first(_MARKS, plain):
        return marked
    if _is_perception_encoder(plain):
        return 'eva'
    if foreign := _foreign_network(plain):
        raise ValueError(f'these are weights of {foreign}; {SUPPORTED}')
    source = _first(_SIGNS, plain)
    # These are names of DINOv2 with registers; timm calls registers otherwise.
    if source == 'deit' and 'register_tokens' in plain:
        return 'dinov2'
    if source == 'deit' and 'pos_embed' not in plain:  # Rotary positions leave no trace in a file.
        if 'blocks.0.gamma_1' in plain:
            return 'eva'
        raise ValueError('these are weights of a ViT without a table of positions, as those with '
                         f'rotary positions are; {SUPPORTED}')
    return source


def _is_perception_encoder(names: list[str]) -> bool:
    """Whether weights are those of timm's Perception Encoder: a norm before the blocks, a table,
    and a head that pools by attention or no norm behind the blocks."""
    return {'norm_pre.weight', 'pos_embed'} <= set(names) and (
        _has(r'attn_pool\..*', names) or not _has(r'(norm|fc_norm)\.weight', names))


def _foreign_network(names: list[str]) -> str | None:
    """Recognise a network that is not supported by which weights it has and which it lacks. Its
    other differences (rotary positions, where norms stand) leave no trace, and its weights would
    fit a model that computes other features."""
    if 'blocks.63.attn.q_bias' in names:
        return "EVA-02-CLIP's enormous model, whose norms stand behind attention and MLP"
    pools = _has(r'(.*\.)?attn_pool\..*', names)
    if _has(r'(.*\.)?(norm_pre|ln_pre)\.weight', names) and (
            pools or not _has(r'(.*\.)?(norm|ln_post)\.weight', names)):
        return ("CoCa, or Perception Encoder's release, which loads in timm's names alone "
                "(checkpoint='timm://vit_pe_core_base_patch16_224.fb')")
    if {'fc_norm.weight', 'pos_embed'} <= set(names) and not _has(
            r'cls_token|reg_token|blocks\.0\.(ls1\.gamma|gamma_1|attn\.(qkv\.bias|q_bias))', names):
        return 'a ViT with its norms behind attention and MLP (vit_base_patch16_rpn)'
    return None


def _has(pattern: str, names: list[str]) -> bool:
    return any(re.fullmatch(pattern, name) for name in names)


def _first(table: tuple[tuple[str, str], ...], names: list[str]) -> str | None:
    return next((meaning for pattern, meaning in table if _has(pattern, names)), None)
