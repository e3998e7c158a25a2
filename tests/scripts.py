"""The tools and benchmarks as modules, and what short runs of theirs need."""
import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[1]

#: --cfg-options that make the small PVT configs narrow, with all loading in this process.
NARROW = ['model.backbone.embed_dims=8,8,8,8', 'model.backbone.num_layers=1,1,1,1',
          'model.backbone.num_heads=1,1,1,1', 'model.neck.in_channels=8,8,8,8',
          'train_dataloader.num_workers=0', 'val_dataloader.num_workers=0',
          'test_dataloader.num_workers=0']


def load_script(folder: str, name: str) -> ModuleType:
    """``folder``/``name``.py of the repository, run as a module of its own."""
    spec = importlib.util.spec_from_file_location(
        f'{folder}_{name}', ROOT / folder / f'{name}.py')
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
