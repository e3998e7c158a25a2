"""Files of BEiT under their release's names, Hugging Face's and OpenMMLab's, and of vit_relpos."""
# Before timm: it provides torchvision's operators where they are not compiled.
import mmposenc  # noqa: F401

# isort: split
import pytest
import torch
from timm.models.beit import Beit, checkpoint_filter_fn, gen_relative_position_index
from timm.models.vision_transformer_relpos import ResPostRelPosBlock, VisionTransformerRelPos

from mmposenc.backbones import ViT, load_pretrained
from mmposenc.checkpoint import convert_with_report, needed_options, recognise

SIZES = dict(img_size=32, patch_size=8, embed_dim=24, depth=2, num_heads=3, num_classes=5)
OURS = dict(arch='beit-base', img_size=32, patch_size=8, embed_dims=24, num_layers=2, num_heads=3)


def random(model):
    torch.manual_seed(0)
    with torch.no_grad():
        for parameter in model.parameters():
            torch.nn.init.normal_(parameter, std=0.3)
    model.eval()
    return model


def timm(**options):
    return random(Beit(**SIZES, use_abs_pos_emb=False, init_values=0.1,
                       **{'use_rel_pos_bias': True, **options}))


def release(state, *, pretraining=False):
    """The release's own file: buffers of offsets, and what pretraining alone has."""
    index = gen_relative_position_index((4, 4))
    made = dict(state)
    for name in state:
        if name.endswith('position_bias_table'):
            made[name.replace('bias_table', 'index')] = index
    if pretraining:
        made |= {'mask_token': torch.randn(1, 1, 24), 'lm_head.weight': torch.randn(8, 24),
                 'lm_head.bias': torch.randn(8), 'cls_pt_layers.0.gamma_1': torch.randn(24)}
    return made


#: The release's names and Hugging Face's, as transformers' own converter lists them.
HF_NAMES = {
    'cls_token': 'beit.embeddings.cls_token', 'mask_token': 'beit.embeddings.mask_token',
    'patch_embed.proj.': 'beit.embeddings.patch_embeddings.projection.',
    'rel_pos_bias.': 'beit.encoder.relative_position_bias.', 'norm.': 'layernorm.',
    'fc_norm.': 'beit.pooler.layernorm.', 'head.': 'classifier.'}
HF_PARTS = {
    'norm1.': 'layernorm_before.', 'norm2.': 'layernorm_after.',
    'attn.proj.': 'attention.output.dense.', 'mlp.fc1.': 'intermediate.dense.',
    'mlp.fc2.': 'output.dense.', 'gamma_1': 'lambda_1', 'gamma_2': 'lambda_2',
    'attn.q_bias': 'attention.attention.query.bias',
    'attn.v_bias': 'attention.attention.value.bias',
    'attn.relative_position_': 'attention.attention.relative_position_bias.relative_position_'}


def hugging_face(state):
    made = {}
    for name, value in state.items():
        if name.endswith('attn.qkv.weight'):
            layer = f'beit.encoder.layer.{name.split(".")[1]}.attention.attention.'
            made |= {f'{layer}{part}.weight': third for part, third in
                     zip(('query', 'key', 'value'), value.chunk(3), strict=True)}
        elif name.startswith('blocks.'):
            _, number, rest = name.split('.', 2)
            old, new = next(pair for pair in HF_PARTS.items() if rest.startswith(pair[0]))
            made[f'beit.encoder.layer.{number}.{new}{rest[len(old):]}'] = value
        elif not name.startswith(('cls_pt', 'lm_head')):
            old, new = next(pair for pair in HF_NAMES.items() if name.startswith(pair[0]))
            made[new + name[len(old):]] = value
        else:
            made[name] = value
    return made


@pytest.mark.parametrize('pretraining', [False, True])
@pytest.mark.parametrize('names', [dict, hugging_face])
def test_every_name_gives_the_same_weights(names, pretraining):
    """Those of timm's file, whose outputs are compared in tests/backbones/test_beit.py."""
    options = dict(use_shared_rel_pos_bias=True, use_rel_pos_bias=False,
                   use_fc_norm=False, num_classes=0) if pretraining else {}
    state = timm(**options).state_dict() if not pretraining else random(
        Beit(**{**SIZES, **options}, use_abs_pos_emb=False, init_values=0.1)).state_dict()
    expected = convert_with_report(state, 'beit')
    assert recognise(state) == 'beit' and not expected.dropped
    file = names(release(state, pretraining=pretraining))
    source = recognise(file)
    assert source == ('huggingface-beit' if names is hugging_face else 'beit')
    got = convert_with_report(file, source)
    assert set(got.state_dict) == set(expected.state_dict)
    for name, value in got.state_dict.items():
        torch.testing.assert_close(value, expected.state_dict[name], atol=0, rtol=0)
    assert sum('offsets' in why for why in got.dropped.values()) == (1 if pretraining else 2)
    assert sum('pretraining' in why for why in got.dropped.values()) == (4 if pretraining else 0)


@pytest.mark.parametrize('library', ['mmpretrain', 'mmseg'])
def test_equals_openmmlab(library):
    backbones = pytest.importorskip(f'{library}.models.backbones')
    if library == 'mmpretrain':
        theirs = backbones.BEiTViT(
            dict(embed_dims=24, num_layers=2, num_heads=3, feedforward_channels=96), img_size=32,
            patch_size=8, final_norm=False, out_indices=[-1])
        options = dict(norm_eps=theirs.ln2.eps)
    else:
        theirs = backbones.BEiT(img_size=32, patch_size=8, embed_dims=24, num_layers=2,
                                num_heads=3, out_indices=(0, 1), qv_bias=True)
        options = dict(out_indices=(0, 1), norm_eps=theirs.layers[0].ln1.eps)
    theirs = random(theirs)
    ours = ViT(**OURS, **options).eval()
    state = theirs.state_dict()
    assert recognise(state) == 'mmpretrain-beit'
    load_pretrained(ours, {f'backbone.{name}': value for name, value in state.items()})
    x = torch.randn(2, 3, 32, 32)
    for got, expected in zip(ours(x), theirs(x), strict=True):
        torch.testing.assert_close(got, expected, atol=1e-5, rtol=1e-5)


def test_a_file_of_another_grid_is_resized_as_timm_does():
    state = timm().state_dict()
    theirs = Beit(**{**SIZES, 'img_size': (48, 56)}, use_abs_pos_emb=False, use_rel_pos_bias=True,
                  init_values=0.1).eval()
    theirs.load_state_dict(checkpoint_filter_fn(state, theirs))
    ours = ViT(**{**OURS, 'img_size': (48, 56)}).eval()
    load_pretrained(ours, state)
    assert ours.blocks[0].attn.rel_pos_encoding.window_size == (6, 7)
    x = torch.randn(1, 3, 48, 56)
    expected = theirs.forward_head(theirs.forward_features(x), pre_logits=True)
    torch.testing.assert_close(ours(x)[0], expected, atol=1e-5, rtol=1e-5)


def test_tables_that_pretraining_shares_go_to_every_block():
    """As in the release's fine-tuning."""
    state = random(Beit(**SIZES, use_abs_pos_emb=False, init_values=0.1,
                        use_shared_rel_pos_bias=True, use_fc_norm=False)).state_dict()
    ours = ViT(**OURS, out_indices=(0, 1))
    load_pretrained(ours, state)
    shared = state['rel_pos_bias.relative_position_bias_table']
    for block in ours.blocks:
        encoding = block.attn.rel_pos_encoding
        assert torch.equal(encoding.relative_position_bias_table, shared[:-3])
        assert torch.equal(encoding.prefix_bias, shared[-3:].t())
    with pytest.raises(ValueError, match='missing: fc_norm.bias, fc_norm.weight'):
        load_pretrained(ViT(**OURS), state)


def test_needs_and_what_has_no_place():
    converted = convert_with_report(timm().state_dict(), 'beit').state_dict
    assert {'model.backbone.qkv_bias=qv', 'model.backbone.final_norm=pooled'} <= set(
        needed_options(converted))
    sizes = dict(img_size=64, patch_size=8, embed_dim=768, num_heads=12, num_classes=0)
    with torch.device('meta'):
        pretrained = Beit(**sizes, use_abs_pos_emb=False, use_shared_rel_pos_bias=True,
                          use_fc_norm=False)
        middle = VisionTransformerRelPos(**sizes, qkv_bias=False, class_token=True, rel_pos_dim=256,
                                         global_pool='token')
    for model, options in ((pretrained, ['arch=beit-base', 'patch_size=8', 'img_size=64',
                                         'layer_scale_init_value=None', 'rel_pos_sharing=all',
                                         'pool=cls', 'final_norm=True']),
                           (middle, ['arch=relpos-base', 'patch_size=8',
                                     'rel_pos_encoding.hidden_dims=256', 'class_token=True',
                                     'pool=cls', 'final_norm=True'])):
        state = model.state_dict()
        assert needed_options(convert_with_report(state, recognise(state)).state_dict) == [
            f'model.backbone.{option}' for option in options]
    behind = VisionTransformerRelPos(**SIZES, block_fn=ResPostRelPosBlock).state_dict()
    with pytest.raises(ValueError, match='a vit_relpos with its norms behind attention and MLP'):
        load_pretrained(ViT(**OURS), behind)
