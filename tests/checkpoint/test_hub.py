"""Weights by name: huggingface_hub itself against its protocol on the loopback address."""
import json
import pickle
import sys
from pathlib import Path

import pytest
import torch
import yaml
from helpers.hostile_pickle import Call
from helpers.hub_server import serving
from helpers.scripts import ROOT
from helpers.tiny_tasks import classifier_config
from helpers.untrained_weights import saved
from safetensors.torch import save

import mmposenc
from mmposenc.backbones.archs.from_repository import vit_arguments_of_repository
from mmposenc.backbones.archs.vit import ARCHS
from mmposenc.checkpoint import hub, load_checkpoint
from mmposenc.checkpoint.files import read_checkpoint, write_checkpoint
from mmposenc.commands.convert import main as convert

pytest.importorskip('huggingface_hub', minversion='1.0')
from huggingface_hub import constants  # noqa: E402

STATE = {'a': torch.arange(50_000.0), 'b': torch.ones(3)}
NAME = 'hf://me/model'
EVIL = pickle.dumps({'a': Call(Path.touch, Path('executed'))})
SMALL = dict(embed_dims=8, num_layers=1, num_heads=2, patch_size=4, img_size=8, pool='gap')


@pytest.fixture
def server(monkeypatch, tmp_path):
    with serving(monkeypatch, tmp_path / 'cache') as made:
        made.repos['me/model'] = {'model.safetensors': save(STATE), 'README.md': b'a model'}
        yield made


def loads(name=NAME):
    return all(torch.equal(STATE[key], value) for key, value in load_checkpoint(name).items())


def refusal(name=NAME, kind=OSError):
    with pytest.raises(kind) as error:
        load_checkpoint(name)
    return str(error.value)


def gets(server, ending='.safetensors'):
    return [asked for asked in server.asked if asked[0] == 'GET' and asked[1].endswith(ending)]


def test_a_file_is_downloaded_once(server):
    assert loads() and loads() and loads('hf://me/model@v1/model.safetensors')
    assert len(gets(server)) == 1


def test_timms_models_have_an_owner(server):
    server.repos['timm/vit.tag'] = server.repos['me/model']
    assert loads('timm://vit.tag')
    assert hub.read_name('timm://vit.tag@v1') == ('timm/vit.tag', 'v1', None)
    assert hub.read_name('hf://a/b@refs%2Fpr%2F1/c/d.safetensors') == (
        'a/b', 'refs/pr/1', 'c/d.safetensors')


def test_a_model_in_pieces(server):
    first, second = ({key: STATE[key]} for key in 'ab')
    server.repos['me/pieces'] = {
        'one.safetensors': save(first), 'two.safetensors': save(second),
        'model.safetensors.index.json': json.dumps(
            dict(weight_map=dict(a='one.safetensors', b='two.safetensors'))).encode()}
    assert loads('hf://me/pieces') and len(load_checkpoint('hf://me/pieces')) == 2
    server.repos['me/bin'] = {'model.safetensors.index.json': json.dumps(
        dict(weight_map=dict(a='one.bin'))).encode()}
    assert "'one.bin', which is no .safetensors" in refusal('hf://me/bin', ValueError)


def test_what_the_hub_refuses_is_told_in_a_line_with_its_reason(server, monkeypatch):
    server.private.add('me/model')
    for name in (NAME, 'hf://me/none'):
        said = refusal(name)
        assert said.startswith(f'{name} could not be downloaded: ') and '\n' not in said
        assert 'Repository Not Found' in said and 'make sure you are authenticated' in said
    monkeypatch.setenv('HF_TOKEN', server.token)
    assert loads()
    assert 'Revision Not Found' in refusal('hf://me/model@v2')


def test_names_that_lead_nowhere(server):
    assert 'me/model has no file other.safetensors; write hf://OWNER/NAME/FILE' in refusal(
        'hf://me/model/other.safetensors', ValueError)
    server.repos['me/two'] = dict.fromkeys(('a.safetensors', 'b.safetensors'), save(STATE))
    assert 'me/two has no file model.safetensors or model.' in refusal('hf://me/two', ValueError)
    for name in ('hf://me', 'hf://me/model@', 'timm://', 'hf://a/b/c.bin', 'timm://a/b.pth'):
        refusal(name, ValueError)
    assert hub.is_hub_name(NAME) and not hub.is_hub_name('work/hf.pth') and not hub.is_hub_name(
        Path('a'))


def test_offline(server, monkeypatch):
    monkeypatch.setattr(constants, 'HF_HUB_OFFLINE', True)
    assert 'not in the cache, and the hub is not reached: ' in refusal()
    assert 'HF_HUB_OFFLINE' in refusal() and not server.asked
    monkeypatch.setattr(constants, 'HF_HUB_OFFLINE', False)
    assert loads()
    monkeypatch.setattr(constants, 'HF_HUB_OFFLINE', True)
    server.asked.clear()
    assert loads() and not server.asked


def test_without_a_connection(server, monkeypatch):
    assert loads()
    for name, value in dict(ENDPOINT='http://127.0.0.1:9', HUGGINGFACE_CO_URL_TEMPLATE=(
            'http://127.0.0.1:9/{repo_id}/resolve/{revision}/{filename}')).items():
        monkeypatch.setattr(constants, name, value)
    waits = []
    monkeypatch.setattr('huggingface_hub.utils._http.time.sleep', waits.append)
    assert loads() and not waits  # from the cache
    assert 'other is not in the cache, and the hub is not reached' in refusal('hf://me/other')
    assert waits == [1, 2, 4, 8, 8]  # of one file; the others are looked for in the cache alone


def test_a_pickle_is_refused_and_nothing_of_it_runs(server, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    server.repos['me/pickle'] = {'pytorch_model.bin': EVIL}
    said = refusal('hf://me/pickle', ValueError)
    assert 'Other kinds of files may hold code and are not read by name' in said
    assert 'only .safetensors are read' in refusal('hf://me/pickle/pytorch_model.bin', ValueError)
    server.repos['me/pickle']['model.safetensors'] = EVIL
    assert 'no safetensors file' in refusal('hf://me/pickle', ValueError)
    assert not gets(server, '.bin') and not Path('executed').exists()


def test_files_beside_the_weights(server):
    server.repos['me/model']['config.json'] = b'{"architecture": "vit_small_patch14_dinov2"}'
    assert hub.read_config(NAME)['architecture']
    server.repos['me/bad'] = {'config.json': b'[]'}
    with pytest.raises(ValueError, match='config.json holds no dict'):
        hub.read_config('hf://me/bad')
    with pytest.raises(OSError, match="me/bad has no file 'other.json'"):
        hub.fetch('hf://me/bad', 'other.json')


def test_without_the_package(monkeypatch):
    monkeypatch.setitem(sys.modules, 'huggingface_hub', None)
    with pytest.raises(ImportError, match=r"pip install 'mmposenc\[hub\]'"):
        load_checkpoint(NAME)


def test_every_way_in(server, tmp_path, monkeypatch, capsys):
    """init_cfg of a backbone, mmengine's loader, the converter and :func:`mmposenc.load`."""
    from mmengine.runner.checkpoint import CheckpointLoader

    torch.manual_seed(0)
    state = mmposenc.ViT(**SMALL).state_dict()
    server.repos['me/vit'] = {'model.safetensors': save(state)}
    model = mmposenc.ViT(**SMALL, init_cfg=dict(type='Pretrained', checkpoint='hf://me/vit'))
    model.init_weights()
    assert all(torch.equal(value, state[key]) for key, value in model.state_dict().items())
    assert CheckpointLoader.load_checkpoint('hf://me/vit').keys() == state.keys()
    assert read_checkpoint('hf://me/vit').state_dict.keys() == state.keys()
    config = classifier_config(tmp_path)
    trained = saved(config, tmp_path / 'epoch_1.pth', ['bright', 'dark'])
    shared = tmp_path / 'model.safetensors'
    write_checkpoint(shared, read_checkpoint(trained).state_dict)
    server.repos['me/trained'] = {shared.name: shared.read_bytes()}
    models = [mmposenc.load(config, weights) for weights in (trained, 'hf://me/trained')]
    torch.testing.assert_close(models[0].state_dict(), models[1].state_dict(), rtol=0, atol=0)
    with pytest.raises(SystemExit, match='me/none could not be downloaded'):
        convert(['auto', 'hf://me/none', str(tmp_path / 'out.pth')])


def test_the_arch_is_that_of_the_repository(server, monkeypatch):
    """One line of config: no arch, which config.json tells; what is given goes before it."""
    monkeypatch.setitem(ARCHS, 'dinov2-small', dict(
        ARCHS['dinov2-small'], embed_dims=8, num_layers=1, num_heads=2, img_size=28))
    torch.manual_seed(0)
    state = mmposenc.ViT('dinov2-small', pool=None).state_dict()
    for file, told in [
            ('timm', dict(architecture='vit_small_patch14_dinov2')),
            ('hf', dict(model_type='dinov2', hidden_size=8, num_hidden_layers=1, patch_size=14,
                        num_attention_heads=2, image_size=28))]:
        server.repos[f'me/{file}'] = {'model.safetensors': save(state),
                                      'config.json': json.dumps(told).encode()}
        model = mmposenc.ViT(pool=None, final_norm='every', drop_path_rate=0.0, init_cfg=dict(
            type='Pretrained', checkpoint=f'hf://me/{file}'))
        model.init_weights()
        assert {key: value.shape for key, value in model.state_dict().items()} == {
            key: value.shape for key, value in state.items()}
        assert torch.equal(model.cls_token, state['cls_token'])
    with pytest.raises(ValueError, match='arch=None needs embed_dims'):
        mmposenc.ViT(init_cfg=dict(type='Pretrained', checkpoint='me/none.pth'))


TOLD = yaml.safe_load((ROOT / 'tests' / 'golden' / 'config_json.yaml').read_text())


@pytest.mark.parametrize('told', TOLD)
def test_what_a_config_json_says(told, server):
    server.repos['me/told'] = {'config.json': json.dumps(told['json']).encode()}
    assert vit_arguments_of_repository('hf://me/told') == told['arguments']


def test_an_arch_that_is_not_known(server):
    server.repos['me/cait'] = {'config.json': b'{"architecture": "cait_s24_224"}'}
    server.repos['me/bert'] = {'config.json': b'{"model_type": "bert", "hidden_size": 384}'}
    for name, told in (
            ('acts', dict(architecture='vit_base_patch16_224', model_args=dict(act_layer='relu'))),
            ('relu', dict(model_type='vit', hidden_act='relu')),
            ('rope', dict(TOLD[0]['json'], rope_theta=10000.0))):
        server.repos[f'me/{name}'] = {'config.json': json.dumps(told).encode()}
    for name, what in (('cait', 'cait_s24_224'), ('bert', "model_type='bert'"),
                       ('acts', r"vit_base_.* with model_args={'act_layer': 'relu'}"),
                       ('relu', "model_type='vit', hidden_act='relu'"), ('rope', '.*dinov3_vit')):
        with pytest.raises(ValueError, match=f'which ViT {what}.* is, is not known here; give '):
            vit_arguments_of_repository(f'hf://me/{name}')
