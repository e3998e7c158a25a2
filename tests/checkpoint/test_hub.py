"""Weights by name: which files of a repository are asked for, and what is said of those that are
not there."""
import json
import pickle
import sys
from pathlib import Path

import pytest
import torch
from helpers.hostile_pickle import Call
from helpers.tiny_tasks import classifier_config
from helpers.untrained_weights import saved
from safetensors.torch import save

import mmposenc
from mmposenc.checkpoint import hub, load_checkpoint
from mmposenc.checkpoint.file_weights import read_checkpoint, write_checkpoint
from mmposenc.commands.convert import main as convert

huggingface_hub = pytest.importorskip('huggingface_hub', minversion='1.0')
from huggingface_hub import constants, errors  # noqa: E402

STATE = {'a': torch.arange(50_000.0), 'b': torch.ones(3)}
NAME = 'hf://me/model'
EVIL = pickle.dumps({'a': Call(Path.touch, Path('executed'))})
SMALL = dict(embed_dims=8, num_layers=1, num_heads=2, patch_size=4, img_size=8, pool='gap')


class Repositories(dict):
    """Stands for huggingface_hub's download: files by repository, and what was asked for."""

    def __init__(self, folder):
        super().__init__()
        self.folder, self.asked, self.error = folder, [], None

    def __call__(self, repo, file, revision=None, local_files_only=False):
        self.asked.append((repo, file, revision, local_files_only))
        if self.error or file not in self[repo]:
            raise self.error or errors.EntryNotFoundError(file)
        path = self.folder / repo.replace('/', '_') / file
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(self[repo][file])
        return str(path)


@pytest.fixture
def repos(monkeypatch, tmp_path):
    made = Repositories(tmp_path)
    made['me/model'] = {'model.safetensors': save(STATE), 'README.md': b'a model'}
    monkeypatch.setattr(huggingface_hub, 'hf_hub_download', made)
    return made


def loads(name=NAME):
    return all(torch.equal(STATE[key], value) for key, value in load_checkpoint(name).items())


def refusal(name=NAME, kind=OSError):
    with pytest.raises(kind) as error:
        load_checkpoint(name)
    return str(error.value)


def test_names_have_a_repository_a_revision_and_a_file(repos):
    repos['timm/vit.tag'] = repos['me/model']
    assert loads() and loads('timm://vit.tag') and loads('hf://me/model@v%2F1/model.safetensors')
    assert [asked[:3] for asked in repos.asked] == [
        ('me/model', 'model.safetensors', None), ('timm/vit.tag', 'model.safetensors', None),
        ('me/model', 'model.safetensors', 'v/1')]
    assert hub.read_name('hf://a/b@c/d/e.safetensors') == ('a/b', 'c', 'd/e.safetensors')
    assert hub.is_hub_name(NAME) and not hub.is_hub_name('work/hf.pth') and not hub.is_hub_name(
        Path('a'))


def test_a_model_in_pieces(repos):
    first, second = ({key: STATE[key]} for key in 'ab')
    repos['me/pieces'] = {
        'one.safetensors': save(first), 'two.safetensors': save(second),
        'model.safetensors.index.json': json.dumps(
            dict(weight_map=dict(a='one.safetensors', b='two.safetensors'))).encode()}
    assert loads('hf://me/pieces') and len(load_checkpoint('hf://me/pieces')) == 2
    folder = repos.folder / 'me_pieces'  # is what was downloaded
    assert loads(folder) and loads(folder / 'model.safetensors.index.json')
    repos['me/bin'] = {'model.safetensors.index.json': json.dumps(
        dict(weight_map=dict(a='one.bin'))).encode()}
    assert "'one.bin', which is no .safetensors" in refusal('hf://me/bin', ValueError)


@pytest.mark.parametrize('index, said', [
    ('[1]', 'no index with a weight_map'), ('{"a": 1}', 'weight_map'), ('{"weight_map', 'no index'),
    ('{"weight_map": {}}', 'no .safetensors of its'), ('[' * 100_000, 'no index'),
    *((json.dumps({'weight_map': {'a': f'{name}.safetensors'}}), 'of its folder')
      for name in ('../x', '/etc/x', 'a/../../x', 'C:/x', '..\\x', 'a\0', 'link'))])
def test_an_index_names_files_of_its_folder(tmp_path, index, said):
    folder = tmp_path / 'model'
    folder.mkdir()
    (tmp_path / 'x.safetensors').write_bytes(save(STATE))
    (folder / 'link.safetensors').symlink_to(tmp_path / 'x.safetensors')
    (folder / 'model.safetensors.index.json').write_text(index)
    with pytest.raises(ValueError, match=rf'model.*{said}'):
        load_checkpoint(folder)
    cache = tmp_path / 'models--me--pieces'  # The hub's own links are followed.
    (cache / 'blobs').mkdir(parents=True)
    (cache / 'blobs' / '1').write_bytes(save(STATE))
    (cache / 'snapshots' / 'main').mkdir(parents=True)
    (cache / 'snapshots' / 'main' / 'a.safetensors').symlink_to('../../blobs/1')
    (cache / 'snapshots' / 'main' / 'model.safetensors.index.json').write_text(
        '{"weight_map": {"a": "a.safetensors"}}')
    assert loads(cache / 'snapshots' / 'main')


def test_names_that_lead_nowhere(repos):
    assert 'me/model has no file other.safetensors; write hf://OWNER/NAME/FILE' in refusal(
        'hf://me/model/other.safetensors', ValueError)
    repos['me/two'] = dict.fromkeys(('a.safetensors', 'b.safetensors'), save(STATE))
    assert 'me/two has no file model.safetensors or model.' in refusal('hf://me/two', ValueError)
    for name in ('hf://me', 'hf://me/model@', 'timm://', 'hf://a/b/c.bin', 'timm://a/b.pth'):
        refusal(name, ValueError)


def test_what_the_hub_refuses_is_told_in_a_line_with_its_reason(repos):
    repos.error = RuntimeError('Cannot access gated repo.\nVisit https://hub to ask for access.')
    assert refusal() == (f'{NAME} could not be downloaded (RuntimeError: Cannot access gated repo. '
                         'Visit https://hub to ask for access.). Try again, or download it '
                         'yourself and name the file')


def test_without_a_connection_the_network_is_tried_once(repos):
    repos.error = errors.LocalEntryNotFoundError('no connection')
    assert 'model is not in the cache, and the hub is not reached: no connection' in refusal()
    assert [cached for *_, cached in repos.asked] == [False, True, True]


def test_offline(monkeypatch, tmp_path):
    """By huggingface_hub itself."""
    monkeypatch.setattr(constants, 'HF_HUB_OFFLINE', True)
    monkeypatch.setattr(constants, 'HF_HUB_CACHE', str(tmp_path))
    said = refusal()
    assert 'not in the cache, and the hub is not reached: ' in said and 'HF_HUB_OFFLINE' in said


def test_a_pickle_is_refused_and_nothing_of_it_runs(repos, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    repos['me/pickle'] = {'pytorch_model.bin': EVIL}
    said = refusal('hf://me/pickle', ValueError)
    assert 'Other kinds of files may hold code and are not read by name' in said
    assert 'only .safetensors are read' in refusal('hf://me/pickle/pytorch_model.bin', ValueError)
    repos['me/pickle']['model.safetensors'] = EVIL
    assert 'no safetensors file' in refusal('hf://me/pickle', ValueError)
    assert not Path('executed').exists()


def test_without_the_package(monkeypatch):
    monkeypatch.setitem(sys.modules, 'huggingface_hub', None)
    with pytest.raises(ImportError, match=r"pip install 'mmposenc\[hub\]'"):
        load_checkpoint(NAME)


def test_every_way_in(repos, tmp_path):
    """init_cfg of a backbone, mmengine's loader, the converter and :func:`mmposenc.load`."""
    from mmengine.runner.checkpoint import CheckpointLoader

    state = mmposenc.ViT(**SMALL).state_dict()
    repos['me/vit'] = {'model.safetensors': save(state)}
    model = mmposenc.ViT(**SMALL, init_cfg=dict(type='Pretrained', checkpoint='hf://me/vit'))
    model.init_weights()
    assert all(torch.equal(value, state[key]) for key, value in model.state_dict().items())
    assert CheckpointLoader.load_checkpoint('hf://me/vit').keys() == state.keys()
    assert read_checkpoint('hf://me/vit').state_dict.keys() == state.keys()
    config = classifier_config(tmp_path)
    trained = saved(config, tmp_path / 'epoch_1.pth', ['bright', 'dark'])
    shared = tmp_path / 'model.safetensors'
    write_checkpoint(shared, read_checkpoint(trained).state_dict)
    repos['me/trained'] = {shared.name: shared.read_bytes()}
    models = [mmposenc.load(config, weights) for weights in (trained, 'hf://me/trained')]
    torch.testing.assert_close(models[0].state_dict(), models[1].state_dict(), rtol=0, atol=0)
    with pytest.raises(SystemExit, match='me/vit has no file b.safetensors'):
        convert(['auto', 'hf://me/vit/b.safetensors', str(tmp_path / 'out.pth')])
