"""ViTs of timm whose weights are recognised: what they are told to need builds, and gives the
features of timm's model, or those of a look-alike that is named. (Models of stages: test_timm.py.)

Some without ``--all``, with it one of seven. MMPOSENC_EVERY=1 takes every name of these modules of
timm, which needs ten minutes.
"""
import os
import re

import pytest
import torch
from helpers.tiny_backbones import KINDS, randomize, unfilled, without_grids
from mmengine.config import Config, DictAction

from mmposenc.backbones import ViT, load_pretrained
from mmposenc.backbones.arch_of_weights import look_alikes, needed_options
from mmposenc.checkpoint import convert, recognise

timm = pytest.importorskip('timm')

#: Those that are quick, and are told by other parts of the code than the archs of test_timm.py.
QUICK = """
    deit_tiny_distilled_patch16_224 eva02_base_patch16_clip_224 eva02_enormous_patch14_clip_224
    samvit_base_patch16_224
    vit_base_patch16_gap_224 vit_base_patch16_rpn_224
    vit_base_patch32_clip_224 vit_pe_core_base_patch16_224 vit_relpos_base_patch16_clsgap_224
    vit_small_patch16_rope_ape_224 vit_so150m2_patch16_reg1_gap_256
    vit_srelpos_medium_patch16_224""".split()
#: Modules of timm whose models are supported, and those of theirs that are refused.
MODULES = ('beit', 'deit', 'eva', 'vision_transformer', 'vision_transformer_relpos',
           'vision_transformer_sam')
EVERY = int(os.environ.get('MMPOSENC_EVERY', '7'))
NAMES = [name for module in MODULES for name in timm.list_models(module=module)[::EVERY]
         if not name.startswith('test_')]
REFUSED = re.compile(r'(aimv2|beit3|eva02_enormous)_.*|vit_(.*_)?(18x2|d?p?wee|dlittle|'
                     r'rpn|sapiens2|xp)(_.*)?')
TABLE = 'backbone.pos_encodings.at.before.0.pos_embed'


def build(options, **small):
    """Our model as a config with ``--cfg-options`` builds it."""
    config = Config(dict(model=dict(backbone=dict())))
    config.merge_from_dict({key: DictAction._parse_iterable(value) for key, value in (
        option.removeprefix('model.backbone.').split('=', 1) for option in options)})
    arguments = {key: value for key, value in config.to_dict().items() if key != 'model'}
    return ViT(**{**arguments, **small})


def shrunk(name, model):
    """timm's model with two blocks and an eighth of the channels, and the sizes of ours."""
    stem, dims = type(model).__name__, model.embed_dim // 8
    patch = model.patch_embed.patch_size[0]
    small = dict(embed_dims=dims, num_layers=2, out_indices=(1,),
                 img_size=min(model.patch_embed.img_size[0], 16 * patch))
    options = {}
    if 'RelPos' in stem:
        options = dict(rel_pos_dim=next(value.shape[0] for key, value in model.state_dict().items()
                                         if key.endswith('rel_pos.mlp.fc1.weight')))
    if 'SAM' in stem:
        options = dict(global_attn_indexes=(1,))
        small |= dict(global_blocks=(1,), img_size=min(model.patch_embed.img_size[0], 28 * patch))
    theirs = timm.create_model(name, depth=2, embed_dim=dims, img_size=small['img_size'],
                               **options)
    small['mlp_hidden_dims'] = theirs.state_dict()['blocks.0.mlp.fc2.weight'].shape[1]
    return theirs, small


def features(model, x):
    out = model.forward_features(x)
    if out.dim() == 4:
        return out if hasattr(model, 'neck') else out.permute(0, 3, 1, 2)
    cells = out[:, getattr(model, 'num_prefix_tokens', 1):]
    patch = model.patch_embed.patch_size[0]
    return cells.mT.unflatten(2, [side // patch for side in x.shape[-2:]])


def difference(name, model, options):
    """Of the span, at the model's own size. (Other sizes: test_timm.py.)"""
    theirs, small = shrunk(name, model)
    theirs = randomize(theirs.double().eval(), 0.3)
    ours = build(options, **small).double().eval()
    load_pretrained(ours, theirs.state_dict())
    x = torch.randn(1, 3, *theirs.patch_embed.img_size, dtype=torch.float64)
    with torch.no_grad():
        got, expected = ours(x)[0], features(theirs, x)
    assert got.shape == expected.shape
    return float((got - expected).abs().max() / (expected.max() - expected.min()))


@pytest.mark.parametrize('name', [
    *QUICK, *(pytest.param(name, marks=pytest.mark.slow) for name in NAMES if name not in QUICK)])
def test_features_are_timms(name) -> None:
    with unfilled():  # of true shapes
        model = timm.create_model(name)
    state = model.state_dict()
    try:
        converted = convert(state, recognise(state))
    except ValueError as error:
        assert REFUSED.fullmatch(name), error
        return
    options = needed_options(converted, KINDS)
    with unfilled():
        own = without_grids(build(options).state_dict())
    expected = {key.removeprefix('backbone.'): value.shape for key, value in converted.items()
                if key.startswith('backbone.') and key != TABLE}
    assert {key: value.shape for key, value in own.items()
            if f'backbone.{key}' != TABLE} == expected
    tried = []
    for extra in ([], *look_alikes(converted, KINDS).values()):
        try:
            tried.append(difference(name, model, [*options, *extra]))
        except ValueError as error:
            assert 'multiple of num_heads' in str(error)  # of a look-alike
            continue
        if tried[-1] <= 1e-5:
            return
    raise AssertionError((options, tried))
