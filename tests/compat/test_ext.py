import ast
import sys
from functools import cache
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch
from helpers.scripts import run_python

from mmposenc.compat import ext, missing


@cache
def names_mmcv_asks_for():
    """(file, name) of every operator that a module of mmcv.ops loads."""
    spec = find_spec('mmcv')
    if spec is None:
        return []
    found = []
    for path in sorted((Path(spec.origin).parent / 'ops').glob('*.py')):
        for node in ast.walk(ast.parse(path.read_text(encoding='utf-8'))):
            if isinstance(node, ast.Call) and getattr(node.func, 'attr', '') == 'load_ext':
                found += [(path.name, name) for name in ast.literal_eval(node.args[1])]
    return found


def test_every_operator_mmcv_asks_for_is_there():
    names = names_mmcv_asks_for()
    if not names:
        pytest.skip('mmcv is not installed')
    assert len(names) > 100
    for _, name in names:
        op = ext.get_op(name)
        assert callable(op)
        if name not in ext.OPS:
            with pytest.raises(NotImplementedError, match=f"needs the mmcv operator '{name}', "):
                op(torch.zeros(1), some_option=1)


def test_the_advice_is_one_that_works(monkeypatch):
    """A build helps a CPU only where mmcv has a kernel for it."""
    with pytest.raises(NotImplementedError, match='Install an mmcv with .* operators: MMCV'):
        ext.get_op('deform_conv_forward')()
    with pytest.raises(NotImplementedError, match='On a CPU nothing runs it, .*: FORCE_CUDA=1'):
        ext.get_op('prroi_pool_forward')()
    monkeypatch.setattr(missing, 'version', {'mmcv': '2.1.0'}.__getitem__)
    monkeypatch.setattr(missing, 'PackageNotFoundError', KeyError)
    with pytest.raises(NotImplementedError, match='MMCV_WITH_OPS=1 pip install .* mmcv==2.1.0'):
        ext.get_op('nms_rotated')()


def layers_without_operators():
    """Layers of mmcv.ops in whose files every operator is missing."""
    import importlib

    from torch import nn
    by_file = {}
    for file, name in names_mmcv_asks_for():
        by_file.setdefault(file.removesuffix('.py'), []).append(name)
    for file, names in by_file.items():
        if not set(names) & set(ext.OPS):
            module = importlib.import_module(f'mmcv.ops.{file}')
            yield from (each for each in vars(module).values() if isinstance(each, type) and
                        issubclass(each, nn.Module) and each.__module__ == module.__name__)


def test_layers_that_cannot_run_are_refused_when_they_are_built():
    """But those that mmcv runs on a CPU without an operator (GroupAll, FusedBiasLeakyReLU, SyncBN
    in evaluation)."""
    ops = pytest.importorskip('mmcv.ops')
    if sys.modules['mmcv._ext'].__spec__.origin != 'mmposenc.compat.ext':
        pytest.skip('mmcv is compiled')
    without = list(layers_without_operators())
    known = {layer.__name__ for layer in without}
    unrefused = {layer.__name__ for layer in without
                 if not {base.__name__ for base in layer.__mro__} & set(missing.LAYERS)}
    assert unrefused <= {'GroupAll', 'FusedBiasLeakyReLU', 'SyncBatchNorm'}
    assert set(missing.LAYERS) - known <= {'SoftmaxFocalLoss', 'SparseConvolution', 'SparseMaxPool'}
    for name, build in {
            'RoIAlignRotated': lambda: ops.RoIAlignRotated((7, 7), 0.5, 2),
            'SubMConv3d': lambda: ops.SubMConv3d(3, 4, 3),
            'Voxelization': lambda: ops.Voxelization(1, [0, 0, 0, 1, 1, 1], 2),
            'ModulatedDeformConv2dPack': lambda: ops.ModulatedDeformConv2dPack(4, 4, 3),
            'DeformRoIPoolPack': lambda: ops.DeformRoIPoolPack((7, 7), 4),
            'CARAFEPack': lambda: ops.CARAFEPack(4, 2),
            'MaskedConv2d': lambda: ops.MaskedConv2d(3, 4, 3),
            'PSAMask': lambda: ops.PSAMask('collect', (3, 3))}.items():
        with pytest.raises(NotImplementedError, match=f"{name} needs the mmcv operator '.*', whi"):
            build()
    ops.RoIAlign((7, 7)), ops.MultiScaleDeformableAttention()


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
