"""Drop-ins in the configs of the installed libraries: with only the type changed they build, have
upstream's weights and its results."""
import copy

import pytest
import torch
from helpers.tiny_backbones import randomize, unfilled
from helpers.upstream_configs import (
    ARGUMENTS,
    DROP_INS,
    SMALL,
    WEIGHTS,
    backbones,
    cut,
    drop_in,
    upstream,
)
from mmengine.registry import DefaultScope
from torch.utils._pytree import tree_leaves

from mmposenc.attention.building import parameter_counts
from mmposenc.backbones import load_pretrained
from mmposenc.signatures import parameters_of

#: Those whose tables fit images of any size.
ANY_SIZE = {'VisionTransformer', 'DistilledVisionTransformer', 'ViTEVA02', 'ViTSAM'}
#: Those that freeze the same parameters.
FREEZE_ALIKE = {*ANY_SIZE, 'BEiT', 'MAE', 'BEiTViT', 'SwinTransformer', 'SwinTransformerV2'}


def image(kind, options):
    """Pixels of a size that the upstream class takes."""
    side = parameters_of(kind).get('img_size')
    size = (72, 104) if side is None else 2 * (options.get('img_size', side.default),)
    if kind.__name__ in ANY_SIZE:
        size = (size[0] - 9, size[1] + 5)
    torch.manual_seed(3)
    return torch.randn(1, options.get('in_channels', 3), *size, dtype=torch.float64)


def build_whole(library, name, options):
    """Build both as a config has them, without memory: as many parameters, and the weights that it
    names. Returns the arguments of the class."""
    kind = upstream(library, name)
    # Models of mmpretrain take an encoder's file out of its config.
    options = {key: value for key, value in options.items() if key in parameters_of(kind)}
    with DefaultScope.overwrite_default_scope(library), unfilled():
        whole, theirs = drop_in(name)(**copy.deepcopy(options)), kind(**copy.deepcopy(options))
    check_count(library, options, whole, theirs)
    weights = next(filter(None, map(options.get, WEIGHTS)), None)
    if isinstance(weights, str):
        weights = dict(checkpoint=weights)
    if isinstance(weights, dict):  # mmdet's PVT takes one without a type
        weights = {'type': 'Pretrained', **weights}
    assert whole.init_cfg == weights
    return options


def check_count(library, options, ours, theirs):
    """As many parameters in both; returns how many more of theirs nothing reads."""
    # Without a class token mmseg has one, and its position.
    alone = library == 'mmseg' and options.get('with_cls_token') is False
    unused = 2 * theirs.cls_token.numel() if alone else 0
    assert sum(parameter_counts(ours).values()) == sum(
        each.numel() for each in theirs.parameters()) - unused
    return unused


def compare(library, name, short):
    kind = upstream(library, name)
    with DefaultScope.overwrite_default_scope(library):
        ours, theirs = (each(**copy.deepcopy(short)) for each in (drop_in(name), kind))
    randomize(theirs)
    models = [torch.nn.ModuleDict(dict(backbone=model)) for model in (ours, theirs)]
    models[0].load_state_dict(models[1].state_dict())  # of a whole model
    load_pretrained(ours, theirs.state_dict())
    unused = check_count(library, short, ours, theirs)
    for model in (ours, theirs):
        model.train()  # Swins are frozen there.
    trained = [sum(number for each, number in parameter_counts(model).items()
                   if each.requires_grad) for model in (ours, theirs)]
    assert name not in FREEZE_ALIKE or trained[0] == trained[1] - unused
    for model in (ours.double(), theirs.double()):
        model.eval()
    with torch.no_grad():
        x, outs = image(kind, short), []
        for model in (ours, theirs):
            torch.manual_seed(4)  # MAE draws patches
            outs.append(tree_leaves(model(x)))
        torch.testing.assert_close(*outs, rtol=1e-5, atol=1e-5)


def test_every_class_of_every_library_is_among_them():
    assert {(library, name) for name in DROP_INS for library in drop_in(name).libraries} == set(
        SMALL)


@pytest.mark.parametrize('library, name', SMALL)
def test_all_arguments_of_the_installed_class_are_known(library, name):
    wanted = set(parameters_of(upstream(library, name)))
    if name == 'PyramidVisionTransformerV2':  # those that its base class gets from it
        wanted -= {'patch_sizes', 'paddings', 'use_abs_pos_embed', 'norm_after_stage',
                   'use_conv_ffn'}
    assert set(drop_in(name).libraries[library]) >= wanted


@pytest.mark.parametrize('library, name, options', [
    *((*case, options) for case, options in SMALL.items()), *ARGUMENTS])
def test_arguments(library, name, options):
    """The drop-in takes them, and has the parameters and the results of upstream's class."""
    compare(library, name, cut(upstream(library, name), build_whole(library, name, options)))


@pytest.mark.slow
@pytest.mark.parametrize('library', sorted({library for library, _ in SMALL}))
def test_every_config(library):
    """With an eighth of the channels, which give the same sums in a tenth of the time."""
    compared = set()
    for name, options, files in backbones(library):
        try:
            short = cut(upstream(library, name), build_whole(library, name, options), narrower=8)
            if (key := (name, repr(sorted(short.items())))) not in compared:
                compare(library, name, short)
            compared.add(key)
        except Exception as error:
            raise AssertionError(f'{len(files)} configs of {library}, such as {files[0]}: {name} '
                                 f'with {options}') from error
    assert {name for name, _ in compared} == {name for each, name in SMALL if each == library}
