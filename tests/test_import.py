"""What `import mmposenc` and its rooms bring along, each in a fresh interpreter; imports and a
training without what only Linux has (tests/helpers/not_linux.py)."""
from importlib.util import find_spec

import pytest
from helpers.scripts import OPENMMLAB, ROOT, run_python, without

TORCH_ONLY = ('functional', 'encodings', 'attention', 'checkpoint', 'padding', 'engine.prepare',
              'openmmlab.datasets')

LOADED = (f'[m for m in sys.modules if m.split(".")[0] in {OPENMMLAB} '
          'and sys.modules[m] is not None]')

has_openmmlab = pytest.mark.skipif(any(find_spec(name) is None for name in OPENMMLAB),
                                   reason='needs OpenMMLab')


def run(code):
    return run_python('-c', code)


def test_plain_import_is_light_and_quiet():
    out = run(f"""
import sys
import mmposenc
assert mmposenc.__version__
assert not {{'torch', 'torchvision', 'numpy', *{OPENMMLAB}}} & set(sys.modules)
before = list(sys.meta_path)
mmposenc.compat.prepare()
assert sys.meta_path == before
""")
    assert out == ''


def test_rooms_that_torch_is_enough_for():
    """They import no OpenMMLab where there is one, and work where there is none; the others say
    what to install. Twice each, in one process: a failed import leaves nothing that the next one
    finds. Of a room that does not need it, checking files works; reading them says what to
    install."""
    run('import sys\n' + ''.join(f'import mmposenc.{room}\nassert not {LOADED}, ({room!r}, '
                                 f'{LOADED})\n' for room in TORCH_ONLY) + without(*OPENMMLAB) + """
import torch
from mmposenc.attention import MultiheadAttention
from mmposenc.encodings import IRPE, PEG
x = torch.randn(2, 12, 8)
assert PEG(8)(x, (3, 4)).shape == x.shape
attention = MultiheadAttention(8, 2, rel_pos_encoding=IRPE(4, 2))
attention(x, (3, 4)).sum().backward()
import mmposenc.engine, mmposenc.openmmlab.datasets.image_files
def needs(module, ask):
    try:
        ask()
    except ImportError as error:
        assert f'{module} needs mmengine and mmcv' in str(error), error
        assert "pip install 'mmposenc[onedl]'" in str(error)
    else:
        raise AssertionError(f'{module} imported')
for _ in range(2):
    needs('mmposenc.registry', lambda: __import__('mmposenc.registry'))
    needs('mmposenc.engine.training', lambda: mmposenc.engine.train)
    needs('mmposenc.openmmlab.necks', lambda: mmposenc.ConcatPyramid)
    needs('mmposenc.openmmlab.datasets.loading',
          lambda: mmposenc.openmmlab.datasets.LoadImageFromFile)
""")


def test_the_compiler_is_imported_by_who_uses_it():
    """What is uncompiled stays so, with all that it calls."""
    run("""
import sys
import torch
import mmposenc.backbones, mmposenc.detr
from mmposenc.functional.tracing import uncompiled
def double(x):
    return x * 2
class Model(torch.nn.Module):
    @uncompiled
    def part(self, x, scale):
        return double(x) * scale
    def forward(self, x, scale):
        return self.part(x + 1, scale) - 1
model, graphs = Model(), []
assert model.part(torch.ones(1), 3) == 6
assert 'torch._dynamo' not in sys.modules
def keep(graph, _):
    graphs.append(graph)
    return graph
compiled = torch.compile(model, dynamic=True, backend=keep)
for size in (2, 5, 7):
    assert (compiled(torch.ones(size, size), size) == 4 * size - 1).all()
names = [str(node.target) for graph in graphs for node in graph.graph.nodes]
assert len(graphs) == 2 and not any('mul' in name for name in names), names
functions = {each.co_name for each in torch._dynamo.utils.get_compilation_metrics()}
assert 'forward' in functions and not {'run', 'part', 'double'} & functions, functions
torch._dynamo.reset()
try:
    torch.compile(model, backend='eager', fullgraph=True)(torch.ones(2), 3)
except torch._dynamo.exc.Unsupported:
    pass
else:
    raise AssertionError('compiled')
""")


def test_preparing_data_and_a_report_need_not_even_torch():
    files = (ROOT / 'mmposenc' / 'engine' / 'prepare').glob('[a-z]*.py')
    run('import sys\nimport mmposenc.lab.compare.page.report\n'
        + ''.join(f'import mmposenc.engine.prepare.{file.stem}\n' for file in files)
        + f"assert 'torch' not in sys.modules and not {LOADED}, {LOADED}")


@has_openmmlab
def test_a_class_imports_the_library_that_it_needs_and_no_other():
    run("""
import sys
from mmposenc import backbones, detr, engine, openmmlab
from mmposenc.openmmlab import datasets, mmdet, mmpretrain, mmseg
from mmposenc.registry import HOOKS, MODELS
assert None not in (MODELS.get('mmposenc.PVT'), MODELS.get('mmposenc.PEG'),
                    HOOKS.get('mmposenc.NotFiniteHook'))
assert not {'mmdet', 'mmseg', 'mmpretrain'} & set(sys.modules)
sys.modules['mmdet'] = None
try:
    MODELS.get('mmposenc.DETR')()
except ImportError as error:
    assert 'mmposenc.openmmlab.mmdet.detr.detectors needs mmdet of OpenMMLab' in str(error), error
else:
    raise AssertionError('built')
""")


@pytest.mark.slow
@has_openmmlab
def test_openmmlab_imports_after_mmposenc_and_says_nothing_of_onedl():
    out = run("""
import sys, mmposenc.openmmlab.mmdet
from mmengine.config.utils import MODULE2PACKAGE
mmposenc.openmmlab.mmdet.CocoDataset
assert {'mmdet', 'mmseg', 'mmpretrain'} & set(sys.modules) == {'mmdet'}
assert MODULE2PACKAGE['mmposenc'] == 'mmposenc'  # so that both names of a config resolve
import mmdet.models, mmseg.models, mmpretrain.models
import mmdet.datasets, mmseg.datasets, mmpretrain.datasets
from torchvision import transforms
transforms.Resize(4)
from mmengine.logging import print_log
print_log('spoken')
print_log('Could not import OneDL', level=10)
print_log('Could not import something else')
""")
    assert [line for line in out.splitlines() if 'Could not' in line or 'spoken' in line] == [
        'spoken', 'Could not import something else']


@pytest.mark.slow
@has_openmmlab
def test_importing_mmdet_before_mmposenc():
    """Its top level is fine; what failed before mmposenc was imported, works after."""
    run("""
import mmdet, mmengine.logging
for module in ('torchvision', 'mmcv.ops'):
    try:
        __import__(module)
    except Exception:
        pass
import mmposenc
import mmdet.models, torchvision
from mmengine.logging import print_log
import io, contextlib
with contextlib.redirect_stdout(io.StringIO()) as out:
    print_log('Could not import OneDL')
assert out.getvalue() == ''
""")


@pytest.mark.slow
@has_openmmlab
def test_every_module_imports_without_what_only_linux_has():
    run("""
from helpers import not_linux
import importlib, pkgutil, mmposenc
for module in pkgutil.walk_packages(mmposenc.__path__, 'mmposenc.'):
    if not module.name.endswith('__main__'):
        importlib.import_module(module.name)
""")


@pytest.mark.slow
@has_openmmlab
def test_a_training_without_what_only_linux_has(tmp_path):
    out = run(f"""
from helpers import not_linux
import sys
del sys.modules['resource']  # mmengine leaves it out only where the platform is Windows
from pathlib import Path
from mmposenc.commands import main
from helpers.tiny_data import tiny_detector
root = Path({str(tmp_path)!r})
config = tiny_detector(root)
main(['train', str(config), '--work-dir', str(root / 'work')])
""")
    assert (tmp_path / 'work' / 'epoch_1.pth').is_file() and 'weights: ' in out
