"""``package::name``, in everything of mmengine that reads configs; nothing runs pip."""
import sys
from pathlib import Path

import pytest
from helpers.scripts import run_python
from mmengine.config import Config
from mmengine.hub import get_config, hub

from mmposenc.catalog.configs import find_config, package_folder

NAMES = {'mmdet': 'retinanet/retinanet_r50_fpn_1x_coco.py',
         'mmseg': 'fcn/fcn_r50-d8_4xb2-40k_cityscapes-512x1024.py',
         'mmpretrain': 'resnet/resnet18_8xb16_cifar10.py',
         'mmposenc': 'detection/pvt/retinanet_pvt-t-peg_fpn_1x_coco.py'}


def shipped(package):
    return package_folder(package) / '.mim' / 'configs' / NAMES[package]


@pytest.fixture(autouse=True)
def no_pip(monkeypatch):
    monkeypatch.setattr('mmengine.utils.package_utils.call_command',
                        lambda command: pytest.fail(f'{command} was run'))


@pytest.mark.parametrize('package', NAMES)
def test_every_way_to_read_it_reads_the_installed_file(package, tmp_path):
    name = f'{package}::{NAMES[package]}'
    text = Config.fromfile(shipped(package))
    assert find_config(name).samefile(shipped(package))
    by_name = Config.fromfile(name)
    assert by_name.to_dict() == text.to_dict() and Path(by_name.filename).is_absolute()
    assert get_config(name).to_dict() == text.to_dict()
    (tmp_path / 'mine.py').write_text(f"_base_ = '{name}'\nwork_dir = 'here'\n")
    based = Config.fromfile(tmp_path / 'mine.py')
    assert based.work_dir == 'here' and set(based) - {'work_dir'} == set(text) - {'work_dir'}
    # mmengine's: what a foreign base holds is looked for in that package.
    assert based.model.get('_scope_') == (None if package == 'mmposenc' else package)
    assert based.model.type == text.model.type


@pytest.mark.parametrize('short, file', [
    ('mmposenc::retinanet-pvt-peg-trees',
     'detection/small/retinanet_pvt-micro-peg_fpn_1xb4-12e_trees.py'),  # not -block, nor -quick
    ('mmposenc::retinanet_pvt-t-peg_coco', 'detection/pvt/retinanet_pvt-t-peg_fpn_1x_coco.py'),
    ('mmdet::mask-rcnn-swin-t-1x-coco', 'swin/mask-rcnn_swin-t-p4-w7_fpn_1x_coco.py')])
def test_words_of_a_file_name_are_a_short_name(short, file):
    assert find_config(short).samefile(find_config(f'{short.partition("::")[0]}::{file}'))
    assert Path(Config.fromfile(short).filename).name == Path(file).name


def test_weights_of_a_config(monkeypatch):
    assert get_config('mmseg::pspnet/pspnet_r50-d8_4xb2-40k_cityscapes-512x1024.py',
                      pretrained=True).model_path.endswith('.pth')


@pytest.mark.parametrize('read', [Config.fromfile, get_config, find_config,
                                  lambda name: Config.fromstring(f'_base_ = {name!r}', '.py')])
@pytest.mark.parametrize('name, said', [
    ('mmseg::fcn/fcn_r50-d8_4xb2-40k_cityscapes.py',
     "no config 'mmseg::fcn/.*did you mean 'mmseg::fcn/fcn_r50-d8_4xb2-40k_cityscapes-"),
    ('mmposenc::retinanet_pvt-t-peg_fpn_1x_coco.py',
     "did you mean 'mmposenc::detection/pvt/retinanet_pvt-t-peg_fpn_1x_coco.py'"),
    ('mmposenc::peg-retinanet', "no config 'mmposenc::peg-retinanet'"),  # words in another order
    ('mmposenc::detr', "no config 'mmposenc::detr'"),  # of several files
    ('mmposenc::', "no config 'mmposenc::'"),
    ('mmfoo::a/b.py', "no config 'mmfoo::a/b.py': there is no package 'mmfoo'"),
    ('../mmseg::a/b.py', "there is no package '../mmseg'")])
def test_what_is_not_there(read, name, said):
    with pytest.raises(FileNotFoundError, match=said):
        read(name)


def test_a_package_that_is_missing_says_what_to_type(monkeypatch):
    """mmengine's own answer is to have pip install one, of the other set."""
    monkeypatch.setitem(sys.modules, 'mmseg', None)
    monkeypatch.setattr('importlib.util.find_spec', lambda name: None)
    with pytest.raises(FileNotFoundError, match=r'(?s)no config .*pip install .mmposenc\[onedl\]'):
        hub.get_config('mmseg::fcn/a.py')


def test_a_file_may_be_called_like_a_config(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / 'a::b.py').write_text('x = 1\n')
    assert Config.fromfile('a::b.py').x == 1


@pytest.mark.slow
def test_where_mmengine_was_imported_first():
    """Even in the middle of an import."""
    code = ("import sys\n"
            "from mmengine.config import Config; from mmengine.hub import get_config\n"
            "assert 'mmposenc' not in sys.modules\n"
            "from importlib.util import find_spec, module_from_spec\n"
            "sys.modules['mmdet.apis.det_inferencer'] = begun = module_from_spec(\n"
            "    find_spec('email.message'))\n"
            "begun.__spec__._initializing = True\n"
            "import mmposenc\n"
            f"name = 'mmseg::{NAMES['mmseg']}'\n"
            "assert get_config(name).to_dict() == Config.fromfile(name).to_dict()\n")
    run_python('-c', code)
