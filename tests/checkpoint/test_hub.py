"""Weights by name: huggingface_hub itself against its protocol on the loopback address."""
import json
import pickle
import sys
from pathlib import Path

import pytest
import torch
from helpers.hostile_pickle import Call
from helpers.hub_server import serving
from helpers.tiny_tasks import classifier_config
from helpers.untrained_weights import saved
from safetensors.torch import save

import mmposenc
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
