"""Pretrained weights: official files load as they are, and what does not fit is named."""
import logging
import re

import pytest
import torch
from helpers.golden_backbones import PVTS as SIZES
from helpers.tiny_backbones import randomize
from mmengine.runner import checkpoint

from mmposenc.backbones import PVT, DeiT, Swin, ViT, load_pretrained
from mmposenc.checkpoint import convert, convert_back, read_checkpoint, write_checkpoint
from mmposenc.checkpoint.mismatch import mismatch_text
from mmposenc.commands.convert import main
from mmposenc.functional.position_tables import resize_position_table

LEARNED = dict(type='LearnedPositionEmbedding')
SWIN = dict(embed_dims=12, num_layers=(2, 2), num_heads=(2, 3), mlp_ratio=2)
BIAS = 'stages.0.blocks.1.attn.w_msa.rel_pos_encoding.relative_position_bias_table'


def deit(size=32, **options):
    """With a learned table, if no other encoding is given."""
    return DeiT(**{**dict(embed_dims=24, num_layers=2, num_heads=3, mlp_ratio=2, patch_size=8,
                          img_size=size, pos_encoding=LEARNED), **options})


def table_of(model):
    return model.pos_encodings.encodings(-1)[0].pos_embed


def save(tmp_path, state):
    path = tmp_path / 'weights.pth'
    torch.save(state, path)
    return dict(type='Pretrained', checkpoint=str(path))


@pytest.mark.parametrize('prefix', ['', 'backbone.', 'module.', 'module.backbone.'])
def test_own_weights_load(tmp_path, prefix):
    """Wrapped ones are read in test_files.py."""
    source = PVT(**SIZES, pos_encoding=dict(type='PEG'))
    state = {prefix + k: v for k, v in source.state_dict().items()}
    if 'backbone.' in prefix:
        state[prefix.replace('backbone.', 'neck.weight')] = torch.zeros(1)
    model = PVT(**SIZES, pos_encoding=dict(type='PEG'), init_cfg=save(tmp_path, state))
    model.init_weights()
    torch.testing.assert_close(model.state_dict(), source.state_dict(), rtol=0, atol=0)


def test_another_architecture_is_an_error_that_names_everything(tmp_path):
    state = PVT(**SIZES, pos_encoding=dict(type='PEG')).state_dict()
    state['stages.0.blocks.0.attn.q.weight'] = torch.zeros(4, 4)
    model = PVT(**{**SIZES, 'num_layers': (1, 2, 1, 2)}, init_cfg=save(tmp_path, state))
    before = {k: v.clone() for k, v in model.state_dict().items()}
    with pytest.raises(ValueError, match=(
            r'does not fit PVT\. Load what fits with strict=False:\n'
            r'.*missing: stages.3.blocks.1..*\n'
            r'.*unexpected: stages.0.pos_encodings.at.after0.0.proj.0.*\n'
            r'.*stages.0.blocks.0.attn.q.weight: \(4, 4\) in the file, \(8, 8\) here')):
        model.init_weights()
    torch.testing.assert_close(model.state_dict(), before, rtol=0, atol=0)
    state = deit().state_dict()
    deeper = state | {key.replace('blocks.1', 'blocks.2'): state[key] for key in state}
    with pytest.raises(ValueError, match=r'The file needs model.backbone.num_layers=3\. Load what'):
        load_pretrained(deit(), deeper)


@pytest.mark.parametrize('options, held, said', [
    ({}, lambda state: {'model_ema': state, 'epoch': 1}, 'holds no weights, only model_ema, epoch; '
     "required are tensors by name, or 'state_dict'"),
    ({}, lambda state: ViT(embed_dims=24, num_layers=2, num_heads=3).state_dict(),
     r'PVT \(supported are files of [^)]*\):'),
    ({}, lambda state: {0: torch.zeros(1)}, 'holds no weights, only 0'),
    ({}, lambda state: {f'net.encoder.{key}': state[key] for key in state},
     r"If this is the backbone, give prefix='net\.encoder\.'"),
    (dict(prefix='encoder.'), dict, "no weights with prefix='encoder.', but patch_embed|stages"),
    *(({}, lambda state, change=change: {**state, 'stages.1.blocks.0.mlp.fc1.bias': change(
        state['stages.1.blocks.0.mlp.fc1.bias'])}, r"finite numbers of the model's types "
        rf'are required; others are in stages\.1\.blocks\.0\.mlp\.fc1\.bias \({kind}\)')
      for change, kind in (
        (lambda bias: bias * torch.nan, 'NaN or infinite'), (lambda bias: bias / 0, 'NaN or .*'),
        (lambda bias: torch.full_like(bias, torch.inf), 'NaN or infinite'),
        (lambda bias: bias.char(), 'int8, here float32'), (lambda bias: bias > 0, 'bool, .*'),
        (lambda bias: bias + 0j, 'complex64, .*'), (lambda bias: bias.to('meta'), 'no values.*'),
        (lambda bias: bias.double() + 1e300, 'NaN or infinite'),
        (torch.Tensor.to_sparse, 'sparse_coo, float32')))])
def test_what_holds_no_weights_or_other_numbers_is_named(options, held, said):
    """Quantized weights would be copied without their factors."""
    model = PVT(**SIZES)
    before = {key: value.clone() for key, value in model.state_dict().items()}
    with pytest.raises(ValueError, match=f'x.pth.*{said}'):
        load_pretrained(model, held(model.state_dict()), **options, name='x.pth', strict=True)
    torch.testing.assert_close(dict(model.state_dict()), before, rtol=0, atol=0)


@pytest.mark.parametrize('change, said', [
    (lambda state: state['num_batches_tracked'] / 3, r'num_batches_tracked \(float32, .*'),
    (lambda state: state['weight'].int(), r'weight \(int32, here float32\)'),
    (lambda state: state['bias'] / 0, r'bias \(NaN or infinite\)'),
    (lambda state: state['running_var'].to('meta'), r'running_var \(no values')])
@pytest.mark.parametrize('load', [lambda *args: load_pretrained(*args, name='x.pth', strict=False),
                                  lambda *args: checkpoint.load_state_dict(*args)])
def test_weights_of_a_whole_model_hold_the_files_numbers(change, said, load):
    model = torch.nn.BatchNorm2d(3)
    state = {key: value + 1 for key, value in model.state_dict().items()}
    load(model, {**state, 'num_batches_tracked': state['num_batches_tracked'].half(),
                 'bias': state['bias'].double(), 'weight': torch.full((1,), 2.).expand(3)})
    torch.testing.assert_close(dict(model.state_dict()), state, rtol=0, atol=0)
    wrong = change({**state, 'bias': state['bias']})
    name = re.match(r'\w+', said)[0]
    with pytest.raises(ValueError, match=f'(x.pth|checkpoint).*{said}'):
        load(model, {**state, name: wrong})
    torch.testing.assert_close(dict(model.state_dict()), state, rtol=0, atol=0)


def test_a_weight_of_two_names_and_a_model_without_memory():
    model = torch.nn.ModuleDict({'a': torch.nn.Linear(2, 2)})
    model['b'] = model['a']
    state = {key: value.clone() for key, value in model.state_dict().items()}
    load_pretrained(model, state)
    with pytest.raises(ValueError, match='x.pth: the model does not have the numbers .* a.bias'):
        load_pretrained(model, {**state, 'b.bias': state['b.bias'] + 1}, name='x.pth')
    with pytest.raises(ValueError, match=r'a.bias \(ndarray, no tensor\)'):
        checkpoint.load_state_dict(model, {**state, 'a.bias': state['a.bias'].numpy()})
    with pytest.raises(ValueError, match='meta device'):
        load_pretrained(model.to('meta'), state)
    masked = torch.nn.Module()
    masked.register_buffer('mask', torch.tensor([0., -torch.inf]))
    load_pretrained(masked, {'mask': masked.mask.clone()})


@pytest.mark.parametrize('build, lost', [
    (lambda: PVT(**SIZES, pos_encoding=dict(type='PEG')), 'stages.2.pos_encodings.'),
    (lambda: PVT(**SIZES, stage_norm=True), 'stages.1.norm.weight'),
    (lambda: Swin(**SWIN, window_size=4), BIAS), (lambda: Swin(**SWIN), 'norm1.bias')])
def test_one_lost_encoding_or_half_a_norm_is_an_error(build, lost):
    model = build()
    state = {key: value for key, value in model.state_dict().items() if not key.startswith(lost)}
    with pytest.raises(ValueError, match=f'missing: {lost}'):
        load_pretrained(model, state)


def test_unknown_options_are_named(tmp_path):
    model = PVT(**SIZES, init_cfg=dict(type='Pretrained', checkpoint='x.pth', strct=False))
    with pytest.raises(ValueError, match=r"unknown: \['strct'\]"):
        model.init_weights()
    with pytest.raises(ValueError, match="strict='yes' must be True, False or 'but encodings'"):
        load_pretrained(model, model.state_dict(), strict='yes')


def test_a_whole_model_takes_what_its_training_wrote_and_no_release():
    model = torch.nn.ModuleDict({'backbone': deit(),
                                 'head': torch.nn.Linear(24, 5)})
    state = model.state_dict()
    loaded = load_pretrained(model, {'state_dict': state, 'meta': {'epoch': 3}}, same_model=True)
    assert loaded.meta == {'epoch': 3} and loaded.names == list(state) and not loaded.misfits
    part = {key: value for key, value in state.items() if key != 'head.bias'}
    with pytest.raises(ValueError, match='x.pth does not fit the model; use another:\n1 missing'):
        load_pretrained(model, part, same_model=True, name='x.pth', remedy='; use another')
    loaded = load_pretrained(model, part, strict=False)
    assert loaded.names == list(part) and loaded.misfits == '1 missing: head.bias'
    release = {'model': convert_back(dict(state)).state_dict, 'epoch': 3}
    with pytest.raises(ValueError, match="those of source 'deit': convert it with `mmposenc conv"):
        load_pretrained(model, release, same_model=True)


def test_a_whole_model_takes_no_table_of_another_grid():
    wide, high = (torch.nn.ModuleDict({'backbone': deit(size)}) for size in ((16, 64), (64, 16)))
    table = 'backbone.pos_encodings.at.before.0.pos_embed'
    before = high.state_dict()[table].clone()
    with pytest.raises(ValueError, match=r'grid_shape: \(2, 8\) in the file, \(8, 2\) here'):
        load_pretrained(high, wide.state_dict())
    loaded = load_pretrained(high, wide.state_dict(), strict='but encodings')
    assert torch.equal(high.state_dict()[table], before) and table not in loaded.names
    weights = [model.backbone.blocks[1].mlp.fc1.weight for model in (wide, high)]
    assert torch.equal(*weights)


def test_a_distilled_file_fits_a_model_without_tokens(said):
    """Tokens and their places in the table are left out, whatever the grid; or stay. Only another
    grid is called resized."""
    source = deit(distilled=True)
    for size, pool, prefix in (((32, 32), 'gap', 0), ((32, 32), 'cls', 1), ((64, 64), None, 0),
                               ((48, 64), 'cls', 2)):
        model = deit(size, pool=pool, distilled=prefix == 2)
        said.clear()
        load_pretrained(model, source.state_dict())
        assert any('is resized to' in text for _, text in said) == (size != (32, 32))
        table = table_of(source)
        cells = resize_position_table(table[:, 2:], (4, 4), (size[0] // 8, size[1] // 8))
        torch.testing.assert_close(table_of(model), torch.cat((table[:, :prefix], cells), 1))


def test_a_square_table_and_a_grid_of_as_many_cells(said):
    """Files of this project say which of both they have. Of those of releases, and of their
    converted weights, a table of the model's shape is the model's, and a warning says so."""
    source = deit()
    cells = resize_position_table(table_of(source)[:, 1:], (4, 4), (2, 8))
    model = deit((16, 64))
    load_pretrained(model, source.state_dict())
    torch.testing.assert_close(table_of(model)[:, 1:], cells)
    assert '4 x 4 cells is resized to 2 x 8' in said[-1][1]
    release = convert_back(dict(source.state_dict())).state_dict
    converted = {key.removeprefix('backbone.'): value
                 for key, value in convert(release, 'deit').items()}
    for state in (release, converted):
        said.clear()
        load_pretrained(model, state)
        torch.testing.assert_close(table_of(model), table_of(source))
        assert ('taken as one of 2 x 8' in said[0][1]) and said[0][0] == logging.WARNING
    model = deit((16, 64))
    model.load_state_dict(converted)
    torch.testing.assert_close(table_of(model), table_of(source))


@pytest.mark.parametrize('size, rows', [((48, 64), 1), ((72, 128), 0), ((40, 16), 1)], ids=str)
def test_tables_of_as_many_rows_as_another_square(size, rows):
    """6 x 8 cells and a class token are as many rows as 7 x 7 cells, and 5 x 2 as 3 x 3 and two."""
    own = deit(size, pos_encoding=dict(**LEARNED, num_prefix_embeds=rows))
    torch.nn.init.normal_(table_of(own))
    model = deit(size, pos_encoding=dict(**LEARNED, num_prefix_embeds=rows))
    load_pretrained(model, convert_back(dict(own.state_dict())).state_dict)
    torch.testing.assert_close(table_of(model), table_of(own), rtol=0, atol=0)


@pytest.mark.parametrize('size', [(32, 32), (16, 64)], ids=str)
def test_grids_are_buffers(size):
    model = deit(size).eval()
    state = {**dict(model.named_parameters()), **dict(model.named_buffers())}
    state = {key: state[key] for key in model.state_dict()}
    deit(size).load_state_dict(state)
    x, grid = torch.randn(1, 3, *size), 'pos_encodings.at.before.0.grid_shape'
    torch.testing.assert_close(torch.func.functional_call(model, state, (x,)), model(x))
    del state[grid]  # as in files of releases
    with torch.device('meta'):
        other = deit(size)
    other.load_state_dict(state, assign=True)
    assert other.get_buffer(grid).tolist() == [side // 8 for side in size]
    torch.testing.assert_close(other.eval()(x), model(x))
    emptied = other.to('meta').to_empty(device='cpu')
    assert emptied.get_buffer(grid).tolist() == [side // 8 for side in size]


@pytest.mark.parametrize('size', [(16, 64), (64, 16), (32, 32), (24, 80)], ids=str)
def test_tables_of_oblong_grids_are_read_on_their_own_grid(size, said, tmp_path):
    """Portrait, landscape and square have as many rows; the grid is in the file."""
    source = deit((16, 64))
    write_checkpoint(tmp_path / 'x.safetensors', source.state_dict())
    state = read_checkpoint(tmp_path / 'x.safetensors').state_dict
    assert state['pos_encodings.at.before.0.grid_shape'].tolist() == [2, 8]
    model = deit(size)
    load_pretrained(model, state)
    torch.testing.assert_close(table_of(model)[:, 1:], resize_position_table(
        table_of(source)[:, 1:], (2, 8), (size[0] // 8, size[1] // 8)))
    assert bool(said) == (size != (16, 64))
    assert all('img_size=(16, 64) keeps it' in text for _, text in said)


@pytest.mark.parametrize('own, window', [
    ((4, 4), (3, 3)), ((4, 4), (6, 6)), ((2, 6), (2, 6)), ((2, 6), (6, 2)), ((2, 6), (3, 4))])
def test_swins_biases_are_resized_as_by_its_release(own, window, said):
    """As mmdet, which took the release's code: bicubic. Windows of 2 x 6 and of 6 x 2 cells have as
    many offsets: a file says which it has."""
    source = Swin(**SWIN, window_size=own, pool='gap')
    torch.nn.init.normal_(source.state_dict()[BIAS])
    model = Swin(**SWIN, window_size=window, pool='gap')
    load_pretrained(model, source.state_dict())
    assert any('resized to the grid or window' in text for _, text in said) == (own != window)
    table = source.state_dict()[BIAS].t().reshape(1, 2, *(2 * side - 1 for side in own))
    expected = torch.nn.functional.interpolate(
        table, [2 * side - 1 for side in window], mode='bicubic')
    torch.testing.assert_close(model.state_dict()[BIAS], expected[0].flatten(1).t())


@pytest.mark.parametrize('build', [
    deit,
    lambda size: Swin(**SWIN, window_size=tuple(side // 8 for side in size)),
    lambda size: Swin(**SWIN, window_size=tuple(side // 8 for side in size), rel_pos_encoding=dict(
        type='UndirectedPositionBias'))])
def test_whole_checkpoints_of_another_orientation_do_not_fit(build):
    """Also for plain torch, which resume, test and predict load with."""
    state, model, square = build((16, 64)).state_dict(), build((64, 16)), build((32, 32))
    before = {key: value.clone() for key, value in model.state_dict().items()}
    with pytest.raises(RuntimeError, match=r'is \(2, 8\) in the file, \(8, 2\) here'):
        model.load_state_dict(state, strict=False)
    tables = [key for key in before if key.endswith(('pos_embed', 'table', 'attention_biases'))]
    assert tables and all(torch.equal(model.state_dict()[key], before[key]) for key in tables)
    report = mismatch_text(model.state_dict(), state)
    assert '(2, 8) in the file, (8, 2) here' in report
    if 'Undirected' in str(square):  # as many distances; of offsets there are others
        with pytest.raises(RuntimeError, match=r'is \(2, 8\) in the file, \(4, 4\) here'):
            square.load_state_dict(state)
        with pytest.raises(ValueError, match=r'is \(2, 8\), \(8, 2\) here; Undirected.*keeps its'):
            load_pretrained(model, state)
    build((16, 64)).load_state_dict(state)


def test_tables_of_rows_and_columns_are_resized_each():
    factorized = dict(type='FactorizedPositionEmbedding')
    source = deit(pos_encoding=factorized)
    model = deit((24, 64), pos_encoding=factorized)
    cut = deit((24, 16), pos_encoding=dict(factorized, coordinates='absolute'))
    for each in (model, cut):
        load_pretrained(each, source.state_dict())
    for axis, length in (('y', 3), ('x', 8)):
        table, own, absolute = (each.pos_encodings.encodings(-1)[0].get_parameter(
            f'pos_embed_{axis}') for each in (source, model, cut))
        torch.testing.assert_close(own, torch.nn.functional.interpolate(
            table.mT, length, mode='linear').mT)
        torch.testing.assert_close(absolute, table[:, :absolute.shape[1]])


def test_a_classifiers_swin_becomes_a_detectors_and_back():
    classifier = Swin(**SWIN, window_size=4, pool='gap')
    torch.nn.init.normal_(classifier.norm1.weight)
    detector = Swin(**SWIN, window_size=4)
    torch.nn.init.normal_(detector.norm0.weight)
    fresh = detector.norm0.weight.clone()
    load_pretrained(detector, classifier.state_dict())
    torch.testing.assert_close(detector.norm0.weight, fresh)
    found = {key: detector.state_dict()[key] for key in classifier.state_dict()}
    torch.testing.assert_close(found, dict(classifier.state_dict()), rtol=0, atol=0)
    back = Swin(**SWIN, window_size=4, pool='gap')
    load_pretrained(back, detector.state_dict())
    torch.testing.assert_close(back.state_dict(), classifier.state_dict(), rtol=0, atol=0)


@pytest.mark.parametrize('source, model, remedy', [
    (lambda: deit(distilled=True),
     lambda: deit(pool=None),
     'class_token=True and distilled=True keeps it'),
    (lambda: PVT(**SIZES, pool='cls'), lambda: PVT(**SIZES), "pool='cls' keeps it")])
def test_a_token_that_is_left_out_is_a_warning_with_the_option_that_keeps_it(
        source, model, remedy, said):
    load_pretrained(model(), source().state_dict(), name='x.pth')
    text, = (text for level, text in said if level == logging.WARNING)
    assert text.startswith('x.pth: ') and 'cls_token' in text and text.endswith(remedy)
    said.clear()
    load_pretrained(source(), source().state_dict())
    assert not said


def test_what_no_file_tells_is_a_warning_with_the_options_of_look_alikes(said, tmp_path, capsys):
    """DeiT III and RoPE-ViT with a table: the same names and shapes, and other features."""
    own = ViT('deit3-small', img_size=32)
    state = convert_back({f'backbone.{key}': value for key, value in own.state_dict().items()})
    assert load_pretrained(own, state.state_dict, name='x.pth').source == 'deit'
    assert [(level, 'RoPE-ViT' in text and 'arch=rope-vit-small-axial-ape' in text)
            for level, text in said] == [(logging.WARNING, True)]
    said.clear()
    load_pretrained(own, own.state_dict())  # this project's own names: known what they are
    assert not said
    load_pretrained(own, dict(state_dict=own.state_dict(), state_dict_ema=own.state_dict()))
    assert 'averaged weights, state_dict_ema, are not taken' in said.pop()[1] and not said
    torch.save(dict(state.state_dict), tmp_path / 'in.pth')
    main(['auto', str(tmp_path / 'in.pth'), str(tmp_path / 'out.pth')])
    assert 'a table: model.backbone.arch=rope-vit-small-axial-ape\n' in capsys.readouterr().out


@pytest.mark.parametrize('dtype', [torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize('build', [
    lambda side: deit(8 * side, num_layers=1), lambda side: deit(patch_size=side, num_layers=1),
    lambda side: deit(8 * side, pos_encoding=dict(type='FactorizedPositionEmbedding')),
    lambda side: deit(8 * side, pos_encoding=dict(**LEARNED, num_prefix_embeds=side < 7)),
    lambda side: deit(in_channels=2 * side - 5), lambda side: Swin(**SWIN, window_size=side)])
def test_files_in_half_precision_are_resized_in_float32(build, dtype):
    source = randomize(build(4))
    half = {key: value.to(dtype) for key, value in source.state_dict().items()}
    model, exact = build(7), build(7).double()
    load_pretrained(model, half)
    load_pretrained(exact, {key: value.double() for key, value in half.items()})
    torch.testing.assert_close(model.double().state_dict(), exact.state_dict(),
                               rtol=1e-5, atol=1e-6)


def test_a_row_without_a_place_is_added_to_its_token():
    source = deit(distilled=True).eval()
    model = deit(distilled=True, pos_encoding=dict(**LEARNED, num_prefix_embeds=0)).eval()
    load_pretrained(model, source.state_dict())
    x = torch.randn(2, 3, 32, 32)
    torch.testing.assert_close(model(x)[0], source(x)[0])
