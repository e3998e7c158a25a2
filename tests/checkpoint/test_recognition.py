"""Every kind of file is told by its names, or refused with what is supported; what a model must be
built with is told by the names and shapes of converted weights."""
import csv
import re
from functools import partial

import pytest
import torch
from helpers.golden_backbones import CASES
from helpers.golden_files import load_golden
from helpers.published_weights import models, published
from helpers.scripts import ROOT, load_tool
from helpers.tiny_backbones import KINDS, randomize, unfilled
from timm import list_pretrained
from timm.models.beit import Beit
from timm.models.swin_transformer import SwinTransformer
from timm.models.vision_transformer import VisionTransformer
from timm.models.vision_transformer_relpos import VisionTransformerRelPos
from timm.models.vision_transformer_sam import VisionTransformerSAM

from mmposenc.backbones import PVT, DeiT, Swin, ViT, load_pretrained
from mmposenc.backbones.arch_of_weights import look_alikes, needed_options
from mmposenc.checkpoint import SOURCES, convert, recognise, rules

#: A name that files of models have that load in timm's names alone, what they are, and whose.
ONLY_OF_TIMM = {
    'blocks.0.attn.rope.freqs_cos': ("EVA-02's release", 'eva02_base'),
    'visual.rope.freqs_sin': ("EVA-02's release", 'eva02_base'),
    'freqs': ("RoPE-ViT's release", 'vit_base_patch16_rope_mixed'),
    'blocks.0.attn.relative_position_index': ('BEiT or Data2Vec', 'beit_base'),
    'rel_pos_bias.relative_position_index': ('BEiT or Data2Vec', 'beit_base'),
    'beit.encoder.layer.0.lambda_1': ('BEiT or Data2Vec', 'beit_base'),
    'beit.encoder.relative_position_bias.relative_position_bias_table': ('BEiT', 'beit_base'),
    'visual.ln_pre.weight': ("CoCa, or Perception Encoder's release", 'vit_pe_')}
#: What else such files have, by which they were once taken for another's.
BESIDE = ('patch_embed.proj.weight', 'cls_token', 'blocks.0.norm1.weight')
SMALL_DEIT = dict(embed_dims=12, num_layers=2, num_heads=3, mlp_ratio=2, patch_size=8, img_size=32)
LEARNED = dict(type='LearnedPositionEmbedding')


@pytest.mark.parametrize('name', ONLY_OF_TIMM)
def test_models_of_timm_are_named_where_others_names_do_not_load(name) -> None:
    who, of_timm = ONLY_OF_TIMM[name]
    with pytest.raises(ValueError, match=f"weights of {who}.*in timm's names alone.*//{of_timm}"):
        load_pretrained(DeiT(**SMALL_DEIT), {key: torch.zeros(2) for key in (*BESIDE, name)},
                        strict=False)


def test_gemma_4s_tower_is_refused_by_name() -> None:
    for patches in ('patch_embed', 'encoder.patch_embed', 'model.vision_tower.patch_embedder'):
        state = {f'{patches}.{name}': torch.zeros(2) for name in (
            'position_embedding_table', 'input_proj.weight')}
        with pytest.raises(ValueError, match=r"x.pth: these are weights of Gemma 4's image tower"):
            load_pretrained(DeiT(**SMALL_DEIT), {
                **state, 'encoder.blocks.0.norm1.weight': torch.zeros(2)}, name='x.pth')


def test_models_that_messages_name_are_in_timms_list() -> None:
    named = {name for source in SOURCES.values() for refusal in source.refuses
             for name in re.findall(r'timm://([^\')]*)', refusal.text)}
    assert len(named) == 4 and named <= set(list_pretrained())


def test_a_network_without_a_name_of_ours_is_refused(tmp_path) -> None:
    state = {f'layer1.{i}.conv1.weight': torch.zeros(1) for i in range(20)}
    with pytest.raises(ValueError, match='ResNet.pth does not fit PVT .supported are'):
        load_pretrained(PVT(arch='tiny'), state, strict=False, name='ResNet.pth')
    torch.save(state, tmp_path / 'in.pth')
    with pytest.raises(SystemExit, match='in.pth is of an unknown .*; supported are'):
        load_tool('convert_checkpoint').main(['auto', str(tmp_path / 'in.pth'),
                                              str(tmp_path / 'out.pth')])


@pytest.mark.parametrize('prefix', ['', 'module.', 'backbone.'])
@pytest.mark.parametrize('stem', CASES)
def test_releases_are_told_by_their_names(stem, prefix) -> None:
    params, _ = load_golden(stem)
    assert recognise({prefix + name: value for name, value in params.items()}) == CASES[stem][0]


def test_a_tower_is_converted_by_one_source(monkeypatch) -> None:
    """Others know its names too, and would leave out what lies around it."""
    state = published('open_clip', models('open_clip')[0]().state_dict())
    converted, apply = [], rules.apply_rules
    monkeypatch.setattr(rules, 'apply_rules', lambda *args: (
        converted.append(args[-1]), apply(*args))[1])
    assert recognise(state) == 'clip'
    assert converted[-2:] == ['clip', 'deit'] and converted.count('deit') == 1


def test_whole_detectors_are_told_and_sent_to_the_converter() -> None:
    names = ['transformer.decoder.layers.0.multihead_attn.in_proj_weight',
             'backbone.0.body.conv1.weight']
    assert recognise(dict.fromkeys(names, torch.zeros(2))) == 'irpe-detr'
    names[0] = 'transformer.level_embed'
    assert recognise(dict.fromkeys(names, torch.zeros(2))) == 'deformable-detr'
    with pytest.raises(ValueError, match='whole detector: .*`mmposenc convert deformable-detr`'):
        load_pretrained(DeiT(**SMALL_DEIT), {name: torch.zeros(2) for name in names})


def test_a_wrong_source_says_whose_names_these_are() -> None:
    params, _ = load_golden('pvt_plain_21')
    with pytest.raises(ValueError, match="'deit' has no rule for .*those of source 'pvt'"):
        convert(params, 'deit')


@pytest.mark.parametrize('prefix', ['', 'backbone.'])
def test_relatives_of_hugging_faces_vit_are_told_apart(prefix) -> None:
    patches = {f'{prefix}embeddings.patch_embeddings.projection.weight': torch.zeros(8, 3, 16, 16)}
    block = {f'{prefix}encoder.layer.0.attention.attention.{part}.weight': torch.zeros(8, 8)
             for part in ('query', 'key', 'value')}
    table = {f'{prefix}embeddings.position_embeddings': torch.zeros(1, 193, 8)}
    with pytest.raises(ValueError, match='these are weights of ViTPose'):
        convert({**patches, **block, **table}, 'huggingface-vit')
    square = {name: value[:, :144] for name, value in table.items()}
    assert convert({**patches, **block, **square}, 'huggingface-vit')
    assert [*look_alikes({}, (), ['dpt.a']).values()] == [['pos_encoding.interpolation=bilinear']]


def test_this_projects_own_names_are_no_sources() -> None:
    from examples import RELATIVE, TOKEN
    small = dict(embed_dims=(8,) * 4, num_layers=(1,) * 4, num_heads=(1,) * 4, mlp_ratios=(1,) * 4)
    builds = (lambda **kwargs: PVT(**small, **kwargs),
              lambda **kwargs: DeiT(**SMALL_DEIT, **kwargs),
              lambda **kwargs: Swin(embed_dims=16, num_layers=(1, 1), num_heads=(2, 4),
                                    window_size=4, **kwargs))
    irpe = dict(type='IRPE', rpe_on='qkv')
    for build in builds:
        for cfg in TOKEN.values():
            assert recognise(build(pos_encoding=cfg).state_dict()) is None
        assert recognise(build(rel_pos_encoding=irpe).state_dict()) is None
    for cfg in RELATIVE.values():
        assert recognise(builds[2](rel_pos_encoding=cfg).state_dict()) is None


def test_deit_iii_says_what_it_needs_and_loads_with_it() -> None:
    state = published('deit iii', randomize(VisionTransformer(
        img_size=32, patch_size=8, embed_dim=12, depth=2, num_heads=3, mlp_ratio=2, num_classes=0,
        init_values=1.0, no_embed_class=True)).state_dict())
    with pytest.raises(ValueError, match=r'needs .*scale_init_value=1e-6.*\n.*unexpected: .*ls1'):
        load_pretrained(DeiT(**SMALL_DEIT, pos_encoding=LEARNED), state)
    models = [DeiT(**SMALL_DEIT, layer_scale_init_value=1e-6, pos_encoding=encoding).eval()
              for encoding in (LEARNED, dict(LEARNED, num_prefix_embeds=0))]
    for model in models:
        load_pretrained(model, state)
    x = torch.randn(2, 3, 32, 32)
    torch.testing.assert_close(models[0](x), models[1](x), rtol=0, atol=0)


def test_sources_stand_in_the_docs() -> None:
    with open(ROOT / 'docs' / 'tables' / 'weights-sources.csv', newline='') as file:
        assert list(csv.reader(file))[1:] == [
            [source.name, source.files] for source in SOURCES.values()
        ], 'docs/tables/weights-sources.csv needs a row for each, in the order of SOURCES'


TABLE = 'pos_encoding.type=mmposenc.LearnedPositionEmbedding'
TINY = partial(ViT, embed_dims=24, num_layers=2, num_heads=3,
               pos_encoding=dict(type='LearnedPositionEmbedding'))
SIZES = ['embed_dims=24', 'num_layers=2', TABLE]  # heads are in no file
BASE = dict(img_size=64, patch_size=8, embed_dim=768, num_heads=12, num_classes=0)


@pytest.mark.parametrize('build, needs', [
    (partial(ViT, 'clip-base', patch_size=32), ['arch=clip-base', 'patch_size=32']),
    (TINY, SIZES),
    (partial(TINY, pre_norm=True, register_tokens=3, mlp='swiglu', mlp_hidden_dims=40,
             layer_scale_init_value=1.0, pool=None, class_token=True),
     [*SIZES, 'norm_eps=1e-5', 'pre_norm=True', 'register_tokens=3', 'layer_scale_init_value=1e-6',
      'mlp=swiglu', 'mlp_hidden_dims=40']),
    (partial(TINY, mlp_ratio=2, qkv_bias='qv', pool='gap'),
     [*SIZES, 'mlp_hidden_dims=48', 'qkv_bias=qv', 'pool=gap']),
    (partial(TINY, layer_scale_init_value=1e-6, pos_encoding=dict(
        type='LearnedPositionEmbedding', num_prefix_embeds=0)),
     [*SIZES, 'pos_encoding.num_prefix_embeds=0', 'layer_scale_init_value=1e-6']),
    (partial(ViT, 'dinov2-small', patch_size=16, img_size=224),
     ['arch=dinov2-small', 'patch_size=16', 'img_size=224']),
    (partial(Beit, **BASE, use_abs_pos_emb=False, use_shared_rel_pos_bias=True, use_fc_norm=False,
             init_values=0.1),
     ['arch=beit-base', 'patch_size=8', 'img_size=64', 'rel_pos_sharing=all', 'pool=cls',
      'final_norm=True']),
    (partial(VisionTransformerRelPos, **BASE, qkv_bias=False, class_token=True, rel_pos_dim=256,
             global_pool='token'),
     ['arch=relpos-base', 'patch_size=8', 'rel_pos_encoding.hidden_dims=256', 'class_token=True',
      'pool=cls', 'final_norm=True']),
    (partial(VisionTransformerSAM, img_size=28, patch_size=4, embed_dim=24, depth=2, num_heads=3,
             num_classes=0, use_rel_pos=True, window_size=3, global_attn_indexes=(1,),
             neck_chans=6),
     ['embed_dims=24', 'num_layers=2', 'rel_pos_encoding.type=mmposenc.DecomposedRPE', TABLE,
      'patch_size=4', 'img_size=28', 'pool=None', 'final_norm=False', 'mask_window_padding=False',
      'window_size=3', 'global_blocks=(1,)', 'neck_channels=6']),
    (partial(SwinTransformer, img_size=64, window_size=((8, 8), (4, 4)), embed_dim=12,
             depths=(2, 2), num_heads=(2, 3), num_classes=0),
     ['embed_dims=12', 'num_layers=(2,2)', 'num_heads=(2,3)', 'window_size=(8,4)'])])
def test_options_that_weights_show(build, needs) -> None:
    with unfilled():
        state = build().state_dict()
    converted = ({f'backbone.{name}': value for name, value in state.items()}
                 if build.func is ViT else convert(state, recognise(state)))
    assert needed_options(converted, KINDS) == [f'model.backbone.{option}' for option in needs]


def test_options_of_oblong_patches() -> None:
    state = TINY(patch_size=(8, 16), img_size=(32, 48)).state_dict()
    assert needed_options({f'backbone.{name}': value for name, value in state.items()}, KINDS) == [
        f'model.backbone.{option}' for option in (
            *SIZES, 'patch_size=(8,16)', 'img_size=(32,48)')]


def test_options_of_swin_v2() -> None:
    block = 'layers.0.blocks.1.attn.'
    state = convert({name: torch.zeros(shape) for name, shape in {
        'patch_embed.proj.weight': (4, 3, 4, 4), f'{block}qkv.weight': (12, 4),
        f'{block}logit_scale': (2, 1, 1), 'layers.0.blocks.1.norm1.weight': (4,),
        'layers.1.blocks.0.norm1.weight': (8,)}.items()}, 'swin')
    assert needed_options(state, KINDS) == [f'model.backbone.{option}' for option in (
        'embed_dims=4', 'num_layers=(1,1)', 'num_heads=(2,)', 'cosine=True', 'post_norm=True',
        'qkv_bias=qv', 'rel_pos_encoding.type=mmposenc.LogSpacedCPB')]
