"""Encodings in timm's models: their own numbers, this project's, every size, training, saving."""
import copy
import pickle
import sys
from functools import partial

import pytest
import timm
import torch
from helpers.concurrent_calls import in_threads
from timm.models import group_parameters
from timm.models.swin_transformer import SwinTransformer
from timm.models.vision_transformer import VisionTransformer

from mmposenc.backbones import Swin, ViT, load_pretrained
from mmposenc.encodings import PEG, RelativePositionBias, relative_tables
from mmposenc.integrations.timm import add_encoding

VIT = dict(embed_dim=32, depth=3, num_heads=2, img_size=32, patch_size=8, num_classes=5)
SWIN = dict(embed_dim=16, depths=(2, 2), num_heads=(2, 4), window_size=4, img_size=32,
            num_classes=5)
MODELS = {
    'vit_tiny_patch16_224': VIT,
    'vit_so150m_patch16_reg4_gap_256': {**VIT, 'qk_norm': True, 'attn_drop_rate': 0.1},
    'vit_base_patch16_clip_224': VIT,
    'eva02_tiny_patch14_224': VIT,
    'eva_giant_patch14_224': {**VIT, 'qkv_fused': False, 'attn_type': 'rope', 'num_kv_heads': 1},
    'vit_small_patch16_dinov3': VIT,
    'vit_small_patch16_rope_mixed_224': VIT,
    'swin_tiny_patch4_window7_224': SWIN,
    'swinv2_tiny_window8_256': SWIN,
}
VIT_TINY, SWIN_TINY = 'vit_tiny_patch16_224', 'swin_tiny_patch4_window7_224'
PEG_AT_ZERO = dict(type='mmposenc.PEG', zero_init=True)
IRPE = dict(type='mmposenc.IRPE', rpe_on='qkv')


def build(name, **options):
    """A model with weights that leave no part without effect."""
    torch.manual_seed(0)
    model = timm.create_model(name, **{**MODELS[name], **options}).eval()
    for parameter in model.parameters():
        if parameter.dim() > 1:
            torch.nn.init.normal_(parameter, std=0.1)
        else:
            torch.nn.init.normal_(parameter, mean=parameter.mean().item(), std=0.1)
    return model


def images(height=32, width=32):
    return torch.randn(2, 3, height, width, generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize('name', MODELS)
def test_an_encoding_at_zero_changes_nothing_and_all_of_it_trains(name):
    model = build(name)
    x, before = images(), None
    with torch.no_grad():
        before = model(x)
        assert before.std() > 0.1
    assert add_encoding(model, PEG_AT_ZERO, IRPE) is model
    with torch.no_grad():
        torch.testing.assert_close(model(x), before, atol=1e-6, rtol=1e-6)
    for parameter in relative_tables(model).values():
        torch.nn.init.normal_(parameter)
    with torch.no_grad():
        assert (model(x) - before).abs().max() > 1e-2
    model.train()(x).square().sum().backward()
    assert [key for key, p in model.named_parameters() if p.grad is None or not p.grad.any()] == []


def filled(model):
    """Encodings that are not zero, the same for every model of these encodings."""
    generator = torch.Generator().manual_seed(3)
    for key, parameter in sorted(model.named_parameters()):
        if 'pos_encoding' in key:
            parameter.data.normal_(0, 0.3, generator=generator)
    return model


@pytest.mark.parametrize('size, sharing', [((32, 32), 'layer'), ((40, 24), 'all')])
def test_a_vit_equals_this_projects_with_the_same_weights(size, sharing):
    """Both kinds of encodings in place of the model's own table, prefix tokens, another grid."""
    options = dict(pos_encoding=[dict(type='mmposenc.PEG', num_layers=2),
                                 dict(type='mmposenc.ContextPool')],
                   positions=(-1, 0, 2), rel_pos_encoding=IRPE, rel_pos_sharing=sharing)
    model = build('vit_tiny_patch16_224', dynamic_img_size=True)
    weights = copy.deepcopy(model.state_dict())
    model = filled(add_encoding(model, **options, drop_pos_embed=True))
    assert 'pos_embed' not in model.state_dict()
    ours = ViT(img_size=32, patch_size=8, embed_dims=32, num_layers=3, num_heads=2, **options)
    load_pretrained(ours, weights, strict=False)
    ours = filled(ours.eval())
    with torch.no_grad():
        torch.testing.assert_close(model.forward_head(model.forward_features(images(*size)), True),
                                   ours(images(*size))[0], atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize('version', [1, 2])
def test_a_swin_equals_this_projects_with_the_same_weights(version):
    """Shifted windows, with the model's own bias beside the encoding. (Windows that are filled up
    differ: timm shifts before it fills, the releases and this project after.)"""
    name = 'swin_tiny_patch4_window7_224' if version == 1 else 'swinv2_tiny_window8_256'
    options = dict(pos_encoding=dict(type='mmposenc.PEG'), rel_pos_encoding=IRPE)
    model = build(name, strict_img_size=False, always_partition=True)
    weights = copy.deepcopy(model.state_dict())
    model = filled(add_encoding(model, **options))
    own = {} if version == 1 else dict(cosine=True, qkv_bias='qv', post_norm=True)
    bias = dict(type='RelativePositionBias' if version == 1 else 'LogSpacedCPB')
    ours = Swin(img_size=32, patch_size=4, embed_dims=16, num_layers=(2, 2), num_heads=(2, 4),
                window_size=4, pool='gap', pad_small_map=True, **own,
                **{**options, 'rel_pos_encoding': [bias, IRPE]})
    load_pretrained(ours, weights, strict=False)
    for encoding, key in zip(_irpes(ours), _irpes(model), strict=True):
        encoding.load_state_dict(key.state_dict())
    for mine, theirs in zip(ours.stages, model.layers, strict=True):
        mine.pos_encodings.load_state_dict(theirs.pos_encodings.state_dict())
    x = images(64, 96)
    with torch.no_grad():
        torch.testing.assert_close(model.forward_head(model.forward_features(x), True),
                                   ours.eval()(x)[0], atol=1e-5, rtol=1e-5)


def _irpes(model):
    return [module for module in model.modules() if type(module).__name__ == 'IRPE']


@pytest.mark.parametrize('name', ['eva02_tiny_patch14_224', 'vit_small_patch16_rope_mixed_224',
                                  'swin_tiny_patch4_window7_224', 'swinv2_tiny_window8_256'])
def test_what_the_model_has_in_its_attention_can_be_dropped(name):
    """A ViT without positions does not see where its patches lie; a Swin has no biases."""
    swin, x = 'swin' in name, images()
    model = add_encoding(build(name, **({} if swin else dict(use_abs_pos_emb=False))),
                         drop_rel_pos=True)
    without, moved = (build(name), x) if swin else (model, x.roll((8, 16), (2, 3)))
    for key, parameter in without.named_parameters():
        if 'relative_position_bias_table' in key or 'cpb_mlp' in key:
            torch.nn.init.zeros_(parameter)
    with torch.no_grad():
        torch.testing.assert_close(model(x), without(moved), atol=1e-5, rtol=1e-5)
    model.train()(x).sum().backward()
    assert [key for key, p in model.named_parameters() if p.grad is None] == []
    if swin:
        model.set_input_size((24, 24), window_size=3)
        assert model(images(24, 24)).isfinite().all()


@pytest.mark.parametrize('name', ['vit_tiny_patch16_224', 'eva02_tiny_patch14_224',
                                  'swin_tiny_patch4_window7_224'])
def test_saving_copying_and_pickling(name):
    """A copy does not lean on what it was copied from; names of timm's weights stay."""
    options = dict(pos_encoding=dict(type='mmposenc.PEG'), rel_pos_encoding=IRPE)
    names = set(build(name).state_dict())
    model, again = (add_encoding(build(name), **options) for _ in range(2))
    again.load_state_dict(filled(model).state_dict())
    assert {key for key in model.state_dict() if 'pos_encoding' not in key} == names
    with torch.no_grad():
        expected = model(images())
        copies = again, copy.deepcopy(model), pickle.loads(pickle.dumps(model))
        for parameter in model.parameters():
            parameter.zero_()
        for other in copies:
            torch.testing.assert_close(other(images()), expected)


@pytest.mark.parametrize('every, reentrant', [(1, False), (1, True), (2, True)])
def test_recomputed_blocks_know_the_grid_of_their_own_images(every, reentrant, monkeypatch):
    """Batches of other shapes with equally many tokens. Reentrantly, the recomputed tokens are
    other tensors, and the backward pass may be any later one."""
    from timm.layers import set_reentrant_ckpt
    from timm.models import vision_transformer
    original = vision_transformer.checkpoint_seq
    monkeypatch.setattr(vision_transformer, 'checkpoint_seq', partial(original, every=every))
    model = filled(add_encoding(build('vit_tiny_patch16_224', dynamic_img_size=True),
                                dict(type='mmposenc.PEG', kernel_size=3), IRPE)).train()
    wanted, found = [], []
    set_reentrant_ckpt(reentrant)
    try:
        for results, recompute in ((wanted, False), (found, True)):
            model.set_grad_checkpointing(recompute)
            model.zero_grad()
            outs = [model(images(*size)) for size in ((16, 48), (48, 16), (16, 48))]
            model(images(48, 16))
            for out in reversed(outs):
                out.square().sum().backward()
            results += [p.grad.clone() for p in model.parameters()]
    finally:
        set_reentrant_ckpt(False)
    torch.testing.assert_close(found, wanted)


def test_threads_with_images_of_other_shapes():
    model = filled(add_encoding(build('vit_tiny_patch16_224', dynamic_img_size=True),
                                dict(type='mmposenc.PEG'), dict(type='mmposenc.RotaryEmbedding')))
    batches = [images(16, 64), images(64, 16)]

    def run(batch):
        with torch.no_grad():
            return model(batch)

    wanted = [run(batch) for batch in batches]
    for number, out in in_threads(run, batches, times=30):
        torch.testing.assert_close(out, wanted[number])


@pytest.mark.slow
def test_compiled_as_one_graph():
    model = filled(add_encoding(build('vit_tiny_patch16_224'), dict(type='mmposenc.PEG'), IRPE))
    with torch.no_grad():
        torch.testing.assert_close(torch.compile(model, backend='eager', fullgraph=True)(images()),
                                   model(images()), atol=1e-5, rtol=1e-5)


def test_causal_and_masked_attention():
    model, x = build('vit_tiny_patch16_224'), images()
    mask = torch.rand(17, 17, generator=torch.Generator().manual_seed(4)) < 0.5
    mask |= torch.eye(17, dtype=torch.bool)
    masks = [dict(is_causal=True), dict(attn_mask=mask)]
    with torch.no_grad():
        wanted = [model.forward_features(x, **each) for each in masks]
        add_encoding(model, rel_pos_encoding=IRPE)  # whose tables start at zero
        found = [model.forward_features(x, **each) for each in masks]
    torch.testing.assert_close(found, wanted, atol=1e-5, rtol=1e-5)
    with pytest.raises(ValueError, match='attn_mask and is_causal=True: give one mask'):
        model.forward_features(x, mask, is_causal=True)


def depths(model, coarse=False):
    return group_parameters(model, model.group_matcher(coarse=coarse), reverse=True)


@pytest.mark.parametrize('sharing', ['layer', 'all'])
def test_layer_wise_rates_of_a_vit_are_those_of_the_backbones_here(sharing):
    token = [dict(type='mmposenc.LearnedPositionEmbedding'), dict(type='mmposenc.PEG')]
    sizes = dict(num_heads=3, img_size=64, patch_size=16)
    model = add_encoding(VisionTransformer(embed_dim=48, depth=4, num_classes=5, **sizes), token,
                         IRPE, rel_pos_sharing=sharing)
    own = ViT(embed_dims=48, num_layers=4, pos_encoding=token, rel_pos_encoding=IRPE,
              rel_pos_sharing=sharing, **sizes)
    found = depths(model)
    names = [name for name in found if 'encoding' in name]
    assert len(names) == len([name for name, _ in model.named_parameters() if 'encoding' in name])
    assert {name: found[name] for name in names} == {
        name: own.get_layer_depth(f'backbone.{name}')[0] for name in names}
    assert found['pos_embed'] == 0 and found['blocks.2.norm1.weight'] == 3
    assert {'pos_embed', 'cls_token', 'pos_encodings.at.before.0.pos_embed',
            *relative_tables(model)} <= model.no_weight_decay()


@pytest.mark.parametrize('sharing', ['layer', 'stage', 'all'])
def test_layer_wise_rates_of_a_swin_are_those_of_its_blocks(sharing):
    model = add_encoding(
        SwinTransformer(img_size=32, patch_size=2, window_size=4, embed_dim=12, depths=(2, 2),
                        num_heads=(2, 2), num_classes=0), dict(type='mmposenc.PEG'),
        dict(type='mmposenc.RelativePositionBias'), (-1, 1), rel_pos_sharing=sharing,
        drop_rel_pos=True)
    found, coarse = depths(model), depths(model, coarse=True)
    for stage in range(2):
        at, block = f'layers.{stage}.pos_encodings.at', f'layers.{stage}.blocks'
        first, last = (found[f'{block}.{i}.norm1.weight'] for i in range(2))
        before, after = (found[f'{at}.{where}.0.proj.0.weight'] for where in ('before', 'after1'))
        assert before == (first if stage else found['patch_embed.proj.weight']) and after == last
        assert coarse[f'{at}.after1.0.proj.0.weight'] == coarse[f'{block}.0.norm1.weight']
    shared = [name for name in found if 'rel_pos_encoding' in name and 'blocks' not in name]
    firsts = [found[f'layers.{stage}.blocks.0.norm1.weight'] for stage in range(2)]
    assert {found[name] for name in shared} == {
        'layer': set(), 'stage': {*firsts}, 'all': {firsts[0]}}[sharing]
    assert all(coarse[name] <= coarse['layers.1.blocks.0.norm1.weight'] for name in shared)


#: Options that do not fit a ViT, and what the message says.
BAD = {
    'nothing to add': dict(),
    'positions=(0,) needs a pos_encoding': dict(positions=(0,), rel_pos_encoding=IRPE),
    "apply_to='qk'": dict(pos_encoding=dict(type='mmposenc.PEG', apply_to='qk')),
    'changes the grid': dict(pos_encoding=dict(type='mmposenc.PEG', padding='none')),
    "rel_pos_sharing='layer'": dict(rel_pos_encoding=RelativePositionBias(
        2, window_size=(4, 4), num_prefix_tokens=1)),
    "rel_pos_sharing='some'": dict(rel_pos_encoding=IRPE, rel_pos_sharing='some'),
    'has no relative encoding': dict(drop_rel_pos=True),
}
#: Models that cannot have an encoding, the options, and what the message says.
CANNOT = [
    (lambda: torch.nn.Linear(2, 2), dict(pos_encoding=PEG_AT_ZERO),
     'model=Linear must be or hold one VisionTransformer'),
    (lambda: add_encoding(build(VIT_TINY), PEG(32)), dict(rel_pos_encoding=IRPE), 'already'),
    (lambda: build(VIT_TINY, patch_drop_rate=0.5), dict(pos_encoding=PEG_AT_ZERO),
     'patch_drop_rate'),
    (lambda: build(SWIN_TINY), dict(drop_pos_embed=True), 'no pos_embed'),
    (lambda: build(SWIN_TINY), dict(pos_encoding=[PEG(16)]),
     'holds a module, PEG, but the model has 2 stages'),
    (lambda: build(VIT_TINY, block_fn=timm.models.vision_transformer.ParallelScalingBlock),
     dict(rel_pos_encoding=IRPE), 'Attention, AttentionRope')]


@pytest.mark.parametrize('make, options, message', [
    *((lambda: build(VIT_TINY), options, message) for message, options in BAD.items()), *CANNOT])
def test_what_does_not_fit_is_named_and_the_model_stays_as_it_was(make, options, message):
    def parts(model):
        return [(type(module), len(module._forward_hooks), len(module._forward_pre_hooks))
                for module in model.modules()]

    model = make()
    before = parts(model)
    with pytest.raises(ValueError) as error:
        add_encoding(model, **options)
    assert message in str(error.value) and parts(model) == before


def test_without_timm(monkeypatch):
    monkeypatch.setitem(sys.modules, 'timm.models.eva', None)
    monkeypatch.delitem(sys.modules, 'mmposenc.integrations.timm')
    with pytest.raises(ImportError, match='needs timm.*torchvision: pip install -U timm'):
        import mmposenc.integrations.timm  # noqa: F401


def test_a_block_cannot_be_called_alone():
    model = add_encoding(build(VIT_TINY), rel_pos_encoding=IRPE)
    with pytest.raises(ValueError, match='call the whole model'):
        model.blocks[0](torch.zeros(1, 17, 32))


def between_blocks(model, change):
    """Other code between two blocks, which makes new tensors of the tokens."""
    if change == 'compiled':
        model.blocks[0] = torch.compile(model.blocks[0], backend='eager')
    elif change == 'cast':
        for block in model.blocks:
            block.register_forward_pre_hook(lambda _, args: (args[0] * 1, *args[1:]), prepend=True)
    else:
        model.blocks[1].register_forward_hook(lambda _, args, out: out * 1)


@pytest.mark.parametrize('change', ['hook', 'cast', 'compiled'])
@pytest.mark.parametrize('name', [VIT_TINY, 'eva02_tiny_patch14_224'])
def test_other_code_between_blocks(name, change):
    model = add_encoding(build(name, dynamic_img_size=True), PEG_AT_ZERO, IRPE)
    other = copy.deepcopy(model)
    between_blocks(other, change)
    for x in (images(24, 48), images(48, 24), images(24, 48)):
        torch.testing.assert_close(other(x), model(x))


@pytest.mark.parametrize('both', [False, True])
def test_tokens_that_are_moved_away_and_computed_again(both):
    """Where two graphs are alive whose grids have as many cells, the memory alone tells them."""
    plain = add_encoding(build(VIT_TINY, dynamic_img_size=True), rel_pos_encoding=IRPE).train()
    model = copy.deepcopy(plain)
    model.set_grad_checkpointing(True)
    first, second = images(24, 56), images(56, 24)
    with torch.autograd.graph.saved_tensors_hooks(torch.clone, lambda tensor: tensor):
        losses = [model(first).sum()]
        losses = [*losses[:both], model(second).sum()]
    if both:
        with pytest.raises(ValueError, match='21 tokens is not known: .* 3 x 7 or 7 x 3 patches'):
            sum(losses).backward()
        return
    losses[0].backward()
    plain(second).sum().backward()
    torch.testing.assert_close(*([p.grad for p in each.parameters()] for each in (model, plain)))


@pytest.mark.parametrize('changed', [False, True])
def test_another_image_is_embedded_before_the_blocks_run(changed):
    model = add_encoding(build(VIT_TINY, dynamic_img_size=True), rel_pos_encoding=IRPE)
    tokens = [model._pos_embed(model.patch_embed(x)) for x in (images(24, 48), images(48, 24))]
    for x, embedded in zip((images(24, 48), images(48, 24)), tokens, strict=True):
        model.patch_embed(x.mT)
        run = torch.nn.Sequential(*model.blocks)
        if changed:
            with pytest.raises(ValueError, match='may be of images of 3 x 6 or 6 x 3 patches'):
                run[1:](run[0](embedded) * 1)
        else:
            out = model.forward_head(model.norm(run(embedded)))
            torch.testing.assert_close(out, model(x))
