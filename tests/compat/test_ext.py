"""The module that stands for mmcv's compiled one, and torchvision without its binary."""
import ast
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch
from helpers.scripts import run_python

from mmposenc.compat import ext, missing


def test_every_operator_mmcv_asks_for_is_there():
    """Of every module of mmcv.ops."""
    spec = find_spec('mmcv')
    if spec is None:
        pytest.skip('mmcv is not installed')
    names = []
    for path in sorted((Path(spec.origin).parent / 'ops').glob('*.py')):
        for node in ast.walk(ast.parse(path.read_text(encoding='utf-8'))):
            if isinstance(node, ast.Call) and getattr(node.func, 'attr', '') == 'load_ext':
                names += ast.literal_eval(node.args[1])
    assert len(names) > 100
    for name in names:
        op = ext.get_op(name)
        assert callable(op)
        if name not in ext.OPS:
            with pytest.raises(NotImplementedError, match=f"needs the mmcv operator '{name}', "):
                op(torch.zeros(1), some_option=1)


def test_the_advice_names_the_installed_mmcv(monkeypatch):
    monkeypatch.setattr(missing, 'version', {'mmcv': '2.1.0'}.__getitem__)
    monkeypatch.setattr(missing, 'PackageNotFoundError', KeyError)
    with pytest.raises(NotImplementedError, match='MMCV_WITH_OPS=1 pip install .* mmcv==2.1.0'):
        ext.get_op('nms_rotated')()


def test_torchvision_is_imported_without_operators_and_says_so():
    torchvision = pytest.importorskip('torchvision')
    if torchvision.extension._has_ops():
        pytest.skip('torchvision has its operators')
    with pytest.raises(RuntimeError, match="Couldn't load custom C.. ops.*reinstall torchvision"):
        torchvision.ops.nms(torch.zeros(1, 4), torch.zeros(1), 0.5)


def test_only_operators_are_attributes():
    for name in ('__path__', '__file__', '__wrapped__', '_private'):
        with pytest.raises(AttributeError, match=name):
            ext.get_op(name)
    assert ext.get_op('get_compiler_version')() == ext.NOT_COMPILED


def test_module_is_served_where_mmcv_has_none():
    run_python('-c', """
import mmposenc, sys
assert not {'torch', 'mmcv', 'mmengine', 'numpy'} & set(sys.modules)
try:
    import mmcv
except ImportError:
    sys.exit(77)
import importlib.util
if importlib.util.find_spec('mmcv._ext').origin != 'mmposenc.compat.ext':
    sys.exit(77)
import copy, inspect, pickle
import mmcv._ext as ext
from mmposenc.compat.nms import nms
assert ext.nms is nms
assert not hasattr(ext, '__path__') and not hasattr(ext, '__all__')
inspect.getmodule(ext), repr(ext), dir(ext)
from mmcv.ops import get_compiling_cuda_version
assert get_compiling_cuda_version() == 'not compiled (mmposenc.compat)'
""")


@pytest.mark.slow
def test_a_compiled_module_is_not_touched(tmp_path):
    """A module of that name in mmcv's own folder wins, whatever the order of imports."""
    pytest.importorskip('mmcv')
    (tmp_path / '_ext.py').write_text('marker = 42\n')
    run_python('-c', """
import sys
import mmposenc, mmcv
mmcv.__path__.insert(0, sys.argv[1])
import mmcv._ext
assert mmcv._ext.marker == 42 and not hasattr(mmcv._ext, 'nms')
assert not any(name.startswith('mmposenc.compat.nms') for name in sys.modules)
""", tmp_path)
