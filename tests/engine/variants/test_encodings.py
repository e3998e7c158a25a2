"""Entries by name, sum, file and class, put into the configs of all tasks; what a pretrained model
keeps, drops and adds."""
from pathlib import Path

import pytest
import torch
from helpers import tiny_detr
from helpers.refusals import refused
from helpers.tiny_tasks import classifier_config, segmentor_config
from helpers.variants import applied, check_fits, entry
from mmengine.config import Config, ConfigDict
from mmengine.optim import build_optim_wrapper
from mmengine.registry import MODELS, init_default_scope

from mmposenc import engine
from mmposenc.encodings import ENCODINGS, IRPE, TransformerXLRPE
from mmposenc.encodings.build import listed
from mmposenc.engine.config.models import build_backbone, build_model
from mmposenc.engine.variants.applying import check_builds
from mmposenc.engine.variants.encodings import NAMES, read_entries
from mmposenc.engine.variants.model_encodings import Changes
from mmposenc.openmmlab.mmdet.detr.positions import pop_absolute

CLASSIFICATION = 'mmposenc::classification/'
DEIT = CLASSIFICATION + 'small/deit-micro-none_1xb32-40e_mnist5k.py'
PVT = CLASSIFICATION + 'small/pvt-micro-peg_1xb32-40e_mnist5k.py'
SWIN = CLASSIFICATION + 'swin/swin-t_8xb128_in1k.py'
RESNET = CLASSIFICATION + 'context_pool/cp-resnet-44_1xb128_cifar10.py'
#: Of CONTRIBUTING.md.
ALIBI = (Path(__file__).parents[3] / 'CONTRIBUTING.md').read_text().split('```python\n')[1].split(
    '```')[0]


@pytest.mark.parametrize('name', [name for name in ENCODINGS if name != 'CombinedRPE'])
def test_every_encoding_has_words_of_its_own(name):
    """All but CombinedRPE, which a sum becomes."""
    cls = ENCODINGS[name]
    variants = vars(cls).get('variants')
    assert variants, f'{name} needs a word and a label in its variants'
    for word, (label, options) in variants.items():
        assert NAMES[word] == (label, dict(type=f'mmposenc.{cls.__name__}', **options))
        alike = [each for each, (other, _) in NAMES.items() if other == label]
        assert alike == [word], f'the words {alike} have the label {label!r}'


def test_a_sum_is_a_token_encoding_and_a_relative_one():
    found = entry('peg+irpe-k')
    assert found.label == 'PEG + iRPE on keys' and found.slug == 'peg+irpe-k'
    assert found.changes.arguments() == dict(
        pos_encoding=dict(type='mmposenc.PEG'), positions=None, rel_pos_sharing='layer',
        rel_pos_encoding=dict(type='mmposenc.IRPE', rpe_on='k'))
    assert entry('peg').changes == Changes([dict(type='mmposenc.PEG')])
    none, alone = entry('none'), entry('none+peg')
    assert (none.label, alone.label) == ('no encoding', 'PEG alone')
    assert none.changes == Changes([], []) and none.changes.arguments() == dict(
        pos_encoding=None, positions=None, rel_pos_encoding=None, rel_pos_sharing='layer')
    assert alone.changes == Changes([dict(type='mmposenc.PEG')], [])
    assert entry('learned+peg').changes.arguments()['pos_encoding'] == [
        dict(type='mmposenc.LearnedPositionEmbedding'), dict(type='mmposenc.PEG')]
    assert entry('irpe-k+sasa').changes.arguments()['rel_pos_encoding'] == [
        dict(type='mmposenc.IRPE', rpe_on='k'), dict(type='mmposenc.SASARPE')]


@pytest.mark.parametrize('word, relative, tokens', [
    ('rotary@4-11', [('RelativePositionBias', [0, 1, 2, 3]),
                     ('RotaryEmbedding', [*range(4, 12)])], []),
    ('rotary@0-11', [('RotaryEmbedding', [*range(12)])], []),
    ('none+rotary@3', [('RotaryEmbedding', [3])], []),
    ('keep+irpe-k@3', [('RelativePositionBias', None), ('IRPE', [3])], []),
    ('peg@2-3', [('RelativePositionBias', None)], [('PEG', [2, 3])]),
    ('peg@2+rotary@1-11', [('RelativePositionBias', [0]), ('RotaryEmbedding', [*range(1, 12)])],
     [('PEG', [2])])])
def test_an_entry_for_some_blocks_leaves_the_others_as_they_are(word, relative, tokens):
    """Beside the tables of a Swin-T, whose 12 blocks are counted through its stages."""
    backbone = applied(SWIN, word).model.backbone
    own = dict(type='mmposenc.RelativePositionBias')
    for given, found in ((backbone.get('rel_pos_encoding', own), relative),
                         (backbone.get('pos_encoding'), tokens)):
        assert [(each['type'].rpartition('.')[2], each.get('blocks'))
                for each in listed(given)] == found
    build_backbone('mmpretrain', backbone)
    assert Changes.read(entry(word).changes.fields()) == entry(word).changes


def test_a_table_before_the_blocks_stays_beside_an_entry_for_some():
    learned = applied(DEIT, 'learned')
    assert [each['type'] for each in applied(learned, 'peg@1').model.backbone.pos_encoding] == [
        'mmposenc.LearnedPositionEmbedding', 'mmposenc.PEG']
    assert applied(learned, 'none+peg@1').model.backbone.pos_encoding == dict(
        type='mmposenc.PEG', blocks=[1])


@pytest.mark.parametrize('word', ['peg@', 'peg@3-1', 'peg@a', 'peg@-1', 'peg@0-', 'peg@0,2'])
def test_what_stands_behind_at_is_blocks(word):
    with pytest.raises(ValueError, match='behind @ stand blocks, such as peg@0-5 or peg@3'):
        read_entries([word])


def write(path: Path, text: str) -> str:
    path.write_text(text)
    return str(path)


def test_a_file_has_entries_with_options(tmp_path):
    write(tmp_path / 'own.py', ALIBI)
    found = read_entries([write(tmp_path / 'my.yaml', """
- name: peg-k5
  label: PEG, 5x5
  pos_encoding: {type: mmposenc.PEG, kernel_size: 5}
  positions: [0, 1]
- name: gap
  pos_encoding: peg
  rel_pos_encoding: [irpe-k, {type: 'own.py:ALiBi'}]
  rel_pos_sharing: stage
  cfg: {model.backbone.pool: gap}
- {name: bare, pos_encoding: none}
""")])
    assert [each.label for each in found] == ['PEG, 5x5', 'gap', 'bare']
    assert found[2].changes == Changes([])
    assert found[0].changes == Changes([dict(type='mmposenc.PEG', kernel_size=5)],
                                       positions=[0, 1])
    summed = found[1].changes.relative
    # A path is looked for from the file's folder, and is whole in the config.
    assert summed[1] == dict(type=f'{tmp_path / "own.py"}:ALiBi')
    backbone = applied(DEIT, found[1]).model.backbone
    assert backbone.pool == 'gap' and backbone.rel_pos_sharing == 'stage'


@pytest.mark.parametrize(('text', 'said'), [
    ('- nam: x', 'it must hold an entry'),
    ('name: x\npos_encoding: {type: mmposenc.PEGG}', "no type 'mmposenc.PEGG'; did you mean 'PEG'"),
    ('name: x\npos_encoding: {kernel_size: 5}', 'must be a name, or have a type'),
    ('name: x\npos_encoding: irpe-k', 'give it as rel_pos_encoding'),
    ('name: x\npositions: [0]', r'positions=\[0\] without a pos_encoding'),
    ('name: x\npos_encoding: peg\npositions: first', "positions='first' must be 'every', or"),
    ('name: x\nrel_pos_encoding: irpe-k\nrel_pos_sharing: some', "='some' must be one of"),
    ('name: x\nrel_pos_sharing: stage', "rel_pos_sharing='stage' without a rel_pos_encoding"),
    ('[{name: "peg 5"}, {name: "peg:5"}]', "folders of one name, 'peg-5'"),
    ('name: x\ncfg: {modell.backbone.pool: gap}',
     "'x'.* cfg modell.backbone.pool: .*did you mean 'model'"),
    ('[', 'is no YAML'),
])
def test_bad_files(tmp_path, text, said):
    with pytest.raises(ValueError, match=said):
        for each in read_entries([write(tmp_path / 'my.yaml', text)]):
            check_fits(engine.load_config(DEIT), each, [1])


def test_only_the_encodings_of_a_backbone_change():
    base = engine.load_config(PVT)
    before = base.to_dict()
    found = applied(base, 'irpe-k')
    assert base.to_dict() == before
    backbone = found.model.backbone
    assert backbone.pos_encoding == dict(type='mmposenc.PEG')  # of the other argument
    assert backbone.rel_pos_encoding == dict(type='mmposenc.IRPE', rpe_on='k')
    backbone = applied(base, 'none+irpe-k').model.backbone
    assert backbone.pos_encoding is None and backbone.positions is None
    back = found.to_dict()
    for key in ('rel_pos_encoding', 'rel_pos_sharing'):
        back['model']['backbone'].pop(key)
        before['model']['backbone'].pop(key, None)
    assert back == before


def test_the_encodings_of_swin_and_of_archs_are_replaced():
    swin = applied(SWIN, 'none').model.backbone
    assert swin.rel_pos_encoding is None
    # Windows have one size: what fills some of them up must not resize their table.
    both = build_backbone('mmpretrain', applied(SWIN, 'swin-bias+irpe-k').model.backbone)
    table, irpe = both.stages[0].blocks[0].attn.w_msa.rel_pos_encoding.encodings
    assert isinstance(irpe, IRPE) and table.resize is None
    assert NAMES['swin-bias'][1]['resize'] == 'geometric'
    assert 'rel_pos_encoding' not in applied(SWIN, 'peg').model.backbone
    cfg = engine.load_config(DEIT)
    cfg.model.backbone = ConfigDict(type='mmposenc.ViT', arch='dinov3-small', img_size=32,
                                    out_indices=(0,))
    model = MODELS.build(applied(cfg, 'none').model.backbone)
    assert not [name for name in model.state_dict() if 'pos_enc' in name]
    assert all(block.attn.rel_pos_encoding is None for block in model.blocks)


def test_tables_are_made_for_the_size_of_training():
    camvid = engine.load_config(
        'mmposenc::segmentation/small/fpn_pvt-micro-none_1xb4-10e_camvid-192x256.py')
    assert applied(camvid, 'learned').model.backbone.img_size == (192, 256)
    pretrained = engine.load_config('mmposenc::detection/pvt/retinanet_pvt-t_fpn_1x_coco.py')
    assert 'img_size' not in applied(pretrained, 'learned').model.backbone


def detr(build=tiny_detr.detr, **kwargs) -> Config:
    """A tiny detector on a ResNet, so that the encoder is what takes encodings."""
    kwargs = {'backbone': tiny_detr.resnet(out_indices=(3,)), 'channels': 32, **kwargs}
    return Config(dict(default_scope='mmdet', model=build(**kwargs)))


def deit_with(relative: dict) -> Config:
    cfg = engine.load_config(DEIT)
    cfg.model.backbone.rel_pos_encoding = relative
    return cfg


@pytest.mark.parametrize(('base', 'around', 'word'), [
    # A class may stand instead of its name, as mmengine allows.
    (lambda: deit_with(dict(type=TransformerXLRPE)), 'backbone', 'peg'),
    (lambda: engine.load_config(DEIT), 'backbone', 'peg+transformer-xl'),
    (lambda: engine.load_config(DEIT), 'backbone', 'irpe-k+transformer-xl'),
    (lambda: detr(), 'encoder', 'peg+transformer-xl'),
    (lambda: applied(detr(), 'transformer-xl'), 'encoder', 'peg')])
def test_encodings_take_no_weight_decay_and_their_part_s_learning_rate(base, around, word):
    cfg, keys = base(), {around: dict(lr_mult=0.5)}
    cfg.optim_wrapper = ConfigDict(
        type='OptimWrapper', optimizer=dict(type='AdamW', lr=1.0, weight_decay=0.1),
        paramwise_cfg=dict(custom_keys=keys))
    found = applied(cfg, word)
    assert cfg.optim_wrapper.paramwise_cfg.custom_keys == keys
    model = build_model(found)
    groups = build_optim_wrapper(model, found.optim_wrapper).optimizer.param_groups
    trained = [name for name, value in model.named_parameters() if value.requires_grad]
    for name, group in zip(trained, groups, strict=True):
        encoding = 'pos_enc' in name
        assert group['weight_decay'] == (0 if encoding and 'pos_proj' not in name else 0.1), name
        assert group['lr'] == (0.5 if around in name else 1), name
    assert sum('pos_enc' in name for name in trained) > 3


@pytest.mark.parametrize(('word', 'absolute', 'between'), [
    ('none', None, None), ('sincos', 'sine', None),
    ('learned', dict(type='mmposenc.LearnedPositionEmbedding'), None),
    ('peg', None, ['mmposenc.PEG']), ('sincos+peg', 'sine', ['mmposenc.PEG'])])
def test_absolute_encodings_are_those_of_a_detr_s_queries_and_keys(word, absolute, between):
    base = detr(encoder=dict(encoder_pos='learned', positions=(1,),
                             pos_encoding=dict(type='mmposenc.PEG', kernel_size=5)))
    encoder = applied(base, word).model.encoder
    assert pop_absolute(encoder) == absolute and encoder.positions is None
    assert [each['type'] for each in listed(encoder.pos_encoding)] == (between or [])


def test_mmdet_s_own_detr_becomes_ours_and_shared_sections_stay_apart():
    base = detr(type_='DETR', encoder=dict(rel_pos_encoding=dict(type='mmposenc.IRPE', ratio=2.0)))
    attention = base.model.encoder.layer_cfg.self_attn_cfg
    base.model.decoder.layer_cfg.self_attn_cfg = attention
    found = applied(base, 'irpe-k+swin-bias')
    assert found.model.type == 'mmposenc.DETR'
    relative = found.model.encoder.rel_pos_encoding
    assert relative[0] == dict(type='mmposenc.IRPE', rpe_on='k')  # no options of the former one
    # An encoder knows no grid: the table is made for that of DETR's learned one.
    assert relative[1].window_size == (25, 42)
    assert 'rel_pos_encoding' not in found.model.decoder.layer_cfg.self_attn_cfg
    assert 'rel_pos_encoding' not in base.model.encoder.layer_cfg.self_attn_cfg


def test_an_encoding_in_the_layers_of_an_encoder_is_replaced():
    base = detr()
    base.model.encoder.layer_cfg.self_attn_cfg.rel_pos_encoding = dict(type='mmposenc.IRPE')
    encoder = applied(base, 'swin-bias').model.encoder
    assert encoder.layer_cfg.self_attn_cfg.rel_pos_encoding is None


@pytest.mark.parametrize(('base', 'words', 'said'), [
    (lambda: detr(tiny_detr.conditional), ['swin-bias'], None),
    (lambda: detr(tiny_detr.dab), ['sincos+irpe-k'], None),
    (lambda: detr(tiny_detr.deformable, channels=[32]), ['sincos+peg'], None),
    (lambda: detr(), ['learned+sincos'], "'learned\\+sincos' does not fit .* 2 absolute encodings"),
    (lambda: detr(tiny_detr.dab), ['peg'], 'the encoder of DAB-DETR'),
    (lambda: engine.load_config(RESNET), ['peg'], "its backbone is 'mmposenc.CPResNet'"),
    (lambda: deit_with(dict(zero_init=True)), ['peg'], "rel_pos_encoding=.* has no 'type'"),
    (lambda: engine.load_config(DEIT), ['query-relative-2d'],
     r"'query-relative-2d' does not fit mmposenc.DeiT at 64x64 pixels \(--sizes 2\): .*max_size"),
    (lambda: Config(dict(default_scope='mmseg', model=dict(
        type='MultimodalEncoderDecoder', image_encoder=dict(type='VisionTransformer')))), ['peg'],
     "its backbone is '', its type 'MultimodalEncoderDecoder'")])
def test_what_fits_passes_and_what_does_not_is_named(base, words, said):
    """More of what fits is in test_fits.py."""
    for each in read_entries(words):
        with refused(said):
            check_fits(base(), each, [1, 2])


def test_a_training_starts_from_weights_of_an_encoding_that_its_config_replaces(tmp_path):
    base = engine.load_config(str(classifier_config(tmp_path)))
    torch.save(dict(state_dict=build_model(applied(base, 'learned')).state_dict()),
               tmp_path / 'trained.pth')
    base.load_from, base.work_dir = str(tmp_path / 'trained.pth'), str(tmp_path / 'peg')
    base.optim_wrapper.optimizer.lr = 0.0
    test = base.copy()
    state = engine.train(base).model.state_dict()
    for name, value in torch.load(base.load_from)['state_dict'].items():
        assert 'pos_enc' in name or torch.equal(state[name], value), name
    test.experiment_name, test.work_dir = 'test', str(tmp_path / 'test')
    with pytest.raises(ValueError, match='does not fit the model'):
        engine.test(test, test.load_from)


def test_a_model_that_cannot_be_built_is_told_before_any_run(tmp_path):
    cfg = engine.load_config(str(segmentor_config(tmp_path)))
    check_builds(cfg)
    cfg.model.pretrained = 'open-mmlab://resnet50_v1c'  # as in mmseg's configs of ResNets
    with pytest.raises(ValueError, match=r"can't be built: model\.pretrained='.*' must be None"):
        check_builds(cfg)


VIT = dict(type='mmposenc.ViT', embed_dims=32, num_layers=2, num_heads=2, patch_size=8)
SMALL_SWIN = dict(type='mmposenc.Swin', embed_dims=32, num_layers=(1, 1), num_heads=(1, 2),
            window_size=4, patch_size=2)


def pretrained(folder, backbone, **given):
    """A config on images of 32 pixels that begins with a model whose tables are not zero."""
    init_default_scope('mmpretrain')
    torch.manual_seed(0)
    model = MODELS.build(dict(backbone, **given))
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=.5)
    torch.save(model.state_dict(), folder / 'w.pth')
    cfg = engine.load_config(DEIT)
    cfg.model.backbone = ConfigDict(**backbone, **given, init_cfg=dict(
        type='Pretrained', checkpoint=str(folder / 'w.pth')))
    return cfg


def made(cfg, word):
    """The backbone of an entry, as training begins with it."""
    model = MODELS.build(applied(cfg, word).model.backbone).eval()
    model.init_weights()
    return model


TABLE = dict(pos_encoding=dict(type='mmposenc.LearnedPositionEmbedding'))


@pytest.mark.parametrize('backbone, given, added', [
    (VIT, dict(**TABLE, img_size=64), ['keep', 'keep+peg', 'keep+irpe-k', 'keep+peg+irpe-k']),
    (VIT, dict(rel_pos_encoding=dict(type='mmposenc.RotaryEmbedding')), ['keep', 'keep+irpe-k']),
    (SMALL_SWIN, {}, ['keep', 'keep+peg', 'keep+irpe-k'])])
def test_what_is_kept_gives_what_it_gave_and_what_is_added_begins_without_effect(
        tmp_path, backbone, given, added):
    cfg = pretrained(tmp_path, backbone, **given)
    plain = MODELS.build(cfg.model.backbone).eval()
    plain.init_weights()
    image = torch.randn(1, 3, 32, 32)
    with torch.no_grad():
        for word in added:
            model = made(cfg, word)
            assert len(model.state_dict()) > len(plain.state_dict()) or word == 'keep'
            torch.testing.assert_close(model(image)[0], plain(image)[0], rtol=1e-5, atol=1e-5)
        assert not torch.allclose(made(cfg, 'none')(image)[0], plain(image)[0])


def test_what_is_added_to_a_frozen_backbone_is_trained_and_what_is_kept_is_not(tmp_path):
    cfg = pretrained(tmp_path, VIT, **TABLE, img_size=64)
    cfg.model.backbone.frozen_stages = 2
    for word, trained in (('keep', ()), ('keep+irpe-k', ('rel_pos_encoding',)), ('none', ()),
                          ('peg+irpe-k', ('pos_encodings', 'rel_pos_encoding'))):
        assert applied(cfg, word).model.backbone.trainable == trained
    for word in ('keep+peg', 'peg@0-1', 'keep+learned'):
        names = {name: each.requires_grad for name, each in made(cfg, word).named_parameters()
                 if 'pos_encodings' in name}
        assert not names.pop('pos_encodings.at.before.0.pos_embed') and all(names.values()), names
    cfg = pretrained(tmp_path, VIT, rel_pos_encoding=dict(type='mmposenc.IRPE'))
    cfg.model.backbone.frozen_stages = 2
    for word, places in (('keep+irpe-q', ['0.attn.rel_pos_encoding.encodings.1',
                                          '1.attn.rel_pos_encoding.encodings.1']),
                         ('irpe-q@1', ['1.attn.rel_pos_encoding'])):
        trained = [name for name, each in made(cfg, word).named_parameters()
                   if each.requires_grad and 'rel_pos' in name]
        assert len(trained) == len(places) and all(
            f'blocks.{place}.' in name for name, place in zip(trained, places, strict=True))


def test_what_is_no_encoding_must_fit(tmp_path):
    cfg = pretrained(tmp_path, VIT, **TABLE, img_size=64)
    cfg.model.backbone.num_layers = 1
    with pytest.raises(ValueError, match='unexpected: .*blocks.1'):
        made(cfg, 'none')


def test_the_sines_of_a_detr_are_its_own():
    cfg = Config(dict(default_scope='mmdet', model=tiny_detr.detr(
        backbone=tiny_detr.resnet(out_indices=(3,)), channels=32)))
    kept, same = (build_model(applied(cfg, word)) for word in ('keep', 'sincos'))
    assert kept.encoder_pos == same.encoder_pos == 'sine'
    assert not any(same.replaced_encodings.values())
    both = check_fits(cfg, 'keep+irpe-k', size=(64, 64))
    assert 'pos_encoding' not in both.model.encoder


@pytest.mark.parametrize('word, changes, said', [
    ('keep+rotary', {}, 'zero_init=True: RotaryEmbedding has no weights'),
    ('keep+keep', {}, 'stands there twice'), ('keep+none', {}, "'none' takes away what 'keep'"),
    ('keep+peg', {'model.backbone.positions': [0]}, r'stand at positions=\[0\], and a sum'),
    ('keep+irpe-k', {'load_from': 'w.pth', 'model.backbone.rel_pos_encoding': dict(
        type='mmposenc.IRPE')}, 'name the file as Pretrained in model.backbone.init_cfg')])
def test_what_cannot_be_is_said(tmp_path, word, changes, said):
    cfg = pretrained(tmp_path, VIT, **TABLE, img_size=32)
    cfg.merge_from_dict(changes)
    with pytest.raises(ValueError, match=said):
        check_fits(cfg, word)
