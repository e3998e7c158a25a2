"""What tools/mutation_run.sh runs, on a copy of the repository: don't run it in the repository.

    python tools/mutation_run.py PYTHON SEED TESTS [N [FILE or FOLDER ...]]
"""
import ast
import random
import shlex
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from cosmic_ray.ast import ast_nodes, get_ast_from_path
from cosmic_ray.mutating import mutate_and_test
from cosmic_ray.plugins import get_operator, operator_names
from cosmic_ray.testing import run_tests
from cosmic_ray.work_item import MutationSpec, TestOutcome

ROOMS = ('functional', 'encodings', 'attention')
Position = tuple[int, int]


def unread(source: str) -> list[tuple[Position, Position]]:
    """Where code is never run: annotations, which `from __future__ import annotations` leaves as
    they are written."""
    found: list[ast.AST | None] = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef):
            args = node.args
            every = [*args.posonlyargs, *args.args, *args.kwonlyargs, args.vararg, args.kwarg]
            found += [node.returns, *(arg.annotation for arg in every if arg)]
        elif isinstance(node, ast.AnnAssign):
            found.append(node.annotation)
    return [((node.lineno, node.col_offset), (node.end_lineno, node.end_col_offset))
            for node in found if node]


def mutations(path: Path) -> Iterator[MutationSpec]:
    """Every change that cosmic-ray makes to a file."""
    tree, skipped = get_ast_from_path(path), unread(path.read_text())
    for name in operator_names():
        operator_class = get_operator(name)
        if operator_class.arguments():
            continue
        operator = operator_class()
        places = (place for node in ast_nodes(tree) for place in operator.mutation_positions(node))
        for occurrence, (start, end) in enumerate(places):
            if not any(first <= start < last for first, last in skipped):
                yield MutationSpec(module_path=path, operator_name=name, operator_args={},
                                   occurrence=occurrence, start_pos=start, end_pos=end)


def test_command(python: str, path: Path, tests: str) -> str:
    """First the test file of a file's own name, where there is one, then all."""
    pytest = f'{shlex.quote(python)} -m pytest -x -q -p no:cacheprovider'
    own = Path('tests', *path.parts[1:-1], f'test_{path.stem}.py')
    commands = [f'{pytest} {own}'] if own.is_file() else []
    return f'bash -c {shlex.quote(" && ".join([*commands, f"{pytest} {tests}"]))}'


def main(python: str, seed: str, tests: str, number: str = '30', *targets: str) -> None:
    paths = [Path(target) for target in targets] or [Path('mmposenc', room) for room in ROOMS]
    files = [file for path in paths
             for file in ([path] if path.is_file() else sorted(path.rglob('*.py')))]
    every = [spec for file in files for spec in mutations(file)]
    if not every:
        sys.exit(f'mutation_run: nothing to change in {" ".join(map(str, paths))}')
    # Without a change the tests must pass, and their time says when a changed one hangs.
    start = time.monotonic()
    outcome, output = run_tests(test_command(python, Path('none.py'), tests), 3600)
    if outcome != TestOutcome.SURVIVED:
        sys.exit(f'mutation_run: the tests fail without any change:\n{output[-2000:]}')
    timeout = 3 * (time.monotonic() - start) + 60
    chosen = random.Random(int(seed)).sample(every, min(int(number), len(every)))
    alive = []
    for count, spec in enumerate(chosen, 1):
        result = mutate_and_test([spec], test_command(python, spec.module_path, tests), timeout)
        lives = result.test_outcome == TestOutcome.SURVIVED
        alive += [result.diff] if lives else []
        print(f'{count}/{len(chosen)} {"ALIVE " if lives else "killed"} {spec.module_path}:'
              f'{spec.start_pos[0]} {spec.operator_name.partition("/")[2]}', flush=True)
        if result.test_outcome == TestOutcome.INCOMPETENT:
            sys.exit(f'mutation_run: {result.output}')
    print('\n\n'.join(['', *alive]))
    print(f'{len(alive)} of {len(chosen)} changes live, of {len(every)} possible in '
          f'{len(files)} files')


if __name__ == '__main__':
    main(*sys.argv[1:])
