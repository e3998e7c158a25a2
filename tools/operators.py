"""Which compiled operators the configs of the installed mmdet and mmseg need, and which miss.

    python tools/operators.py                   # all configs of both
    python tools/operators.py --code            # what any code of theirs may call, in a minute
    python tools/operators.py mmdet --lacking   # only those that lack one, with what they lack

A model is built on the meta device, which takes no memory. The code of its layers, and all that it
refers to (losses, assigners, post-processing), is searched for calls of ``mmcv._ext``; what a
branch calls that this model never takes is counted too. Where a model cannot be built here (a
package or a file is missing), the classes that its config names are searched instead.
"""
from __future__ import annotations

import argparse
import contextlib
import inspect
import io
import sys
import warnings
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any

PACKAGES = ('mmdet', 'mmseg')
FOLLOWED = ('mmdet', 'mmseg', 'mmcv', 'mmpretrain', 'mmengine.model', 'torchvision.ops')


def configs(package: str) -> list[Path]:
    """The configs that the package ships, without the parts that they are made of."""
    module = __import__(package)
    root = Path(module.__file__).parent / '.mim' / 'configs'
    return [path for path in sorted(root.rglob('*.py'))
            if '_base_' not in path.parts and not path.name.startswith('_')]


def code_of(value: Any) -> Iterator[tuple[CodeType, dict[str, Any]]]:
    """The code of a function, or of all that a class and its ancestors define, with the names that
    it sees."""
    value = inspect.unwrap(getattr(value, '__func__', value)) if callable(value) else value
    if isinstance(value, FunctionType):
        yield value.__code__, value.__globals__
    elif inspect.isclass(value):
        for base in value.__mro__:
            if base.__module__.startswith(FOLLOWED):
                for member in vars(base).values():
                    member = getattr(member, '__func__', getattr(member, 'fget', member))
                    if isinstance(member, FunctionType):
                        yield from code_of(member)


def names_in(code: CodeType) -> Iterator[str]:
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from names_in(constant)


def operators_of(roots: list[Any]) -> set[str]:
    """The operators that classes and functions may call, followed through what they name.

    A class of layers is followed only as a root: who builds it makes it a part of the model.
    """
    from torch import nn
    extension = sys.modules['mmcv._ext']
    found: set[str] = set()
    seen: set[int] = set()
    queue = list(roots)
    while queue:
        value = queue.pop()
        if id(value) in seen:
            continue
        seen.add(id(value))
        for code, names in code_of(value):
            for name in set(names_in(code)):
                other = names.get(name)
                if other is extension:
                    found |= {each for each in names_in(code) if is_operator(each)}
                elif callable(other) and str(getattr(other, '__module__', '')).startswith(
                        FOLLOWED) and not (inspect.isclass(other) and issubclass(other, nn.Module)):
                    queue.append(other)
                elif getattr(other, '__self__', None) is not None and inspect.isclass(
                        other.__self__):  # Function.apply under a name of its own
                    queue.append(other.__self__)
    return found


def operators_of_package(package: str) -> set[str]:
    """What any class or function of a package may call, and any layer of mmcv that its code imports
    or a config of its names: an upper bound, without building a model."""
    import importlib
    import pkgutil
    import re

    import mmcv.ops
    root = __import__(package)
    roots: list[Any] = []
    for found in pkgutil.walk_packages(root.__path__, f'{package}.'):
        with contextlib.suppress(Exception):  # parts that need packages which are not installed
            module = importlib.import_module(found.name)
            roots += [value for value in vars(module).values() if callable(value) and str(
                getattr(value, '__module__', '')).startswith((f'{package}.', 'mmcv.ops'))]
    for path in configs(package):
        for kind in re.findall(r"type=['\"](\w+)", path.read_text(encoding='utf-8')):
            roots += [getattr(mmcv.ops, kind)] if hasattr(mmcv.ops, kind) else []
    from mmengine.registry import MODELS
    roots += [entry for name in ('DCN', 'DCNv2', 'SAC', 'carafe') if (entry := MODELS.get(name))]
    return operators_of(roots)


def is_operator(name: str) -> bool:
    """Whether mmcv asks its extension for a name."""
    return name in asked_for()


def asked_for(kept: set[str] = set()) -> set[str]:  # noqa: B006  (read once)
    if not kept:
        import ast
        folder = Path(__import__('mmcv').__file__).parent / 'ops'
        for path in folder.glob('*.py'):
            for node in ast.walk(ast.parse(path.read_text(encoding='utf-8'))):
                if isinstance(node, ast.Call) and getattr(node.func, 'attr', '') == 'load_ext':
                    kept |= set(ast.literal_eval(node.args[1]))
    return kept


def parts(cfg: Any) -> Iterator[dict[str, Any]]:
    """All dicts of a config."""
    if isinstance(cfg, dict):
        yield cfg
    for value in cfg.values() if isinstance(cfg, dict) else cfg if isinstance(cfg, (list, tuple)) \
            else ():
        yield from parts(value)


def without_numbers(cfg: Any) -> Any:
    """What decides which classes a model is made of: a ResNet-101 is a ResNet-50 here."""
    if isinstance(cfg, dict):
        return {key: without_numbers(value) for key, value in cfg.items()}
    if isinstance(cfg, (list, tuple)):
        return [without_numbers(value) for value in cfg]
    return 0 if isinstance(cfg, (int, float)) and not isinstance(cfg, bool) else cfg


def without_files(cfg: Any) -> None:
    """Nothing is loaded."""
    for part in parts(cfg):
        for key in ('init_cfg', 'pretrained', 'checkpoint', 'load_from'):
            if key in part and key != 'checkpoint':
                part[key] = None


def named_classes(cfg: Any, package: str) -> list[Any]:
    """What a config names, as far as a registry has it."""
    import mmcv.ops
    registries = __import__(f'{package}.registry', fromlist=['registry'])
    found = []
    for part in parts(cfg):
        kind = part.get('type')
        if inspect.isclass(kind) or inspect.isfunction(kind):
            found.append(kind)
        elif isinstance(kind, str):
            with contextlib.suppress(Exception):
                found += [entry for registry in (registries.MODELS, registries.TASK_UTILS)
                          if (entry := registry.get(kind)) is not None]
            found += [getattr(mmcv.ops, kind)] if hasattr(mmcv.ops, kind) else []
    return found


def build(cfg: Any, package: str) -> Any:
    """The model on the meta device."""
    import torch
    from mmengine.registry import DefaultScope
    registry = __import__(f'{package}.registry', fromlist=['MODELS']).MODELS
    with DefaultScope.overwrite_default_scope(package), torch.device('meta'):
        return registry.build(cfg)


def needs(cfg: Any, package: str) -> tuple[set[str], str]:
    """The operators of a config, and why it could not be built, or ''."""
    from mmengine.registry import DefaultScope
    without_files(cfg)
    why = ''
    with DefaultScope.overwrite_default_scope(package):
        roots = named_classes(cfg, package)
    try:
        roots += [type(module) for module in build(cfg, package).modules()]
    except Exception as error:
        why = f'{type(error).__name__}: {str(error).strip().splitlines()[-1][:90]}'
    return operators_of(roots), why


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('packages', nargs='*', default=[], help='mmdet, mmseg (default: both)')
    parser.add_argument('--only', default='', help='a part of the paths of the configs wanted')
    parser.add_argument('--code', action='store_true', help='search all code of the package '
                        'instead of building models: quick, and an upper bound')
    parser.add_argument('--lacking', action='store_true', help='list the configs that lack one')
    parser.add_argument('--unbuilt', action='store_true', help='list those that were not built')
    args = parser.parse_args(argv)
    if unknown := set(args.packages) - set(PACKAGES):
        parser.error(f'packages must be of {PACKAGES}, got {sorted(unknown)}')
    warnings.simplefilter('ignore')
    import mmposenc  # noqa: F401  (before mmcv)
    from mmposenc.operators.ext import OPS
    for package in args.packages or PACKAGES:
        __import__(f'{package}.models')
        if args.code:
            found = operators_of_package(package)
            print(f'{package}: {len(found)} operators, lacking: '
                  f'{", ".join(sorted(found - set(OPS))) or "none"}')
            continue
        report(package, [path for path in configs(package) if args.only in str(path)], set(OPS),
               args)


def report(package: str, paths: list[Path], here: set[str], args: argparse.Namespace) -> None:
    """Prints how many configs need each operator."""
    count: Counter[str] = Counter()
    unbuilt, lacking, unreadable = {}, {}, {}
    known: dict[str, tuple[set[str], str]] = {}
    for path in paths:
        try:
            cfg = read(path)
        except Exception as error:
            unreadable[path] = f'{type(error).__name__}: {error}'
            continue
        key = repr(without_numbers(cfg))
        if key not in known:
            with contextlib.redirect_stdout(io.StringIO()):
                known[key] = needs(cfg, package)
        found, why = known[key]
        count.update({name.removesuffix('_forward') for name in found if '_backward' not in name})
        if why:
            unbuilt[path] = why
        if found - here:
            lacking[path] = found - here
    print(f'{package}: {len(paths)} configs, {len(known)} models that differ by more than numbers; '
          f'{len(unbuilt)} could not be built and were searched by name, {len(unreadable)} could '
          f'not be read; {len(lacking)} lack an operator')
    print('| operator | configs | here |\n|---|---|---|')
    forms = {name.removesuffix('_forward') for name in here}
    for name, number in count.most_common():
        print(f'| {name} | {number} | {"yes" if name in forms else "no"} |')
    for path, names in lacking.items() if args.lacking else ():
        print('lacks', ', '.join(sorted(names)), path)
    for path, why in unreadable.items() if args.unbuilt else ():
        print(f'not read ({why}): {path}')
    reasons = defaultdict(list)
    for path, why in unbuilt.items():
        reasons[why].append(path)
    for why, several in reasons.items() if args.unbuilt else ():
        print(f'{len(several)} not built ({why}), such as {several[0]}')


def read(path: Path) -> Any:
    """The model of a config; {} where it has none."""
    from mmengine.config import Config
    return Config.fromfile(str(path), import_custom_modules=False).get('model', {})


if __name__ == '__main__':
    main()
