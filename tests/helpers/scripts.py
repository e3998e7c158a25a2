"""The tools and benchmarks as modules, and what short runs of theirs need."""
import importlib.util
import os
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
OPENMMLAB = ('mmengine', 'mmcv', 'mmdet', 'mmseg', 'mmpretrain')

#: --cfg-options that make the small PVT configs narrow, with all loading in this process.
NARROW = ['model.backbone.embed_dims=8,8,8,8', 'model.backbone.num_layers=1,1,1,1',
          'model.backbone.num_heads=1,1,1,1', 'model.neck.in_channels=8,8,8,8',
          'train_dataloader.num_workers=0', 'val_dataloader.num_workers=0',
          'test_dataloader.num_workers=0']


def short(names: Iterable[str], *kept: str) -> list[Any]:
    """Cases of a test by name; without ``--all``, some of them."""
    return [name if name in kept else pytest.param(name, marks=pytest.mark.slow) for name in names]


def run_python(*words: object, folder: Path = ROOT, **env: str) -> str:
    """What a process of this Python says that ends well; its test is skipped where it ends with 77.
    """
    done = subprocess.run(
        [sys.executable, *map(str, words)], cwd=folder, text=True, capture_output=True, timeout=900,
        env={**os.environ, 'PYTHONPATH': f'{ROOT}{os.pathsep}{ROOT / "tests"}',
             'OMP_NUM_THREADS': '1', **env})
    if done.returncode == 77:
        pytest.skip(done.stdout or 'nothing to test here')
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
    return done.stdout + done.stderr


def without(*packages: str) -> str:
    """The start of a process in which none of these packages can be found or imported."""
    return f'import sys\nfor name in {packages}: sys.modules[name] = None\n'


def load_script(folder: str, name: str) -> ModuleType:
    """``folder``/``name``.py of the repository, run as a module of its own."""
    spec = importlib.util.spec_from_file_location(f'{folder}_{name}', ROOT / folder / f'{name}.py')
    module = importlib.util.module_from_spec(spec)
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(ROOT / folder)  # where a script finds its neighbours
        spec.loader.exec_module(module)
    return module


def load_tool(name: str) -> ModuleType:
    """A command-line tool."""
    return load_script('tools', name)


def named(run: str) -> list[str]:
    """Options of a run: mmengine keeps one visualizer a name in a process, and hooks take the
    newest name's, so other tests leave visualizers of other libraries behind."""
    return [f'visualizer.name={run}', f'experiment_name={run}']
