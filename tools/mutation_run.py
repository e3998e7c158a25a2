"""What tools/mutation_run.sh runs, on a copy of the repository: don't run it in the repository.

    python tools/mutation_run.py PYTHON SEED TESTS [N [FILE or FOLDER ...]]
"""
import ast
import random
import re
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path

from cosmic_ray.ast import ast_nodes, get_ast_from_path
from cosmic_ray.mutating import mutate_and_test
from cosmic_ray.plugins import get_operator, operator_names
from cosmic_ray.testing import run_tests
from cosmic_ray.work_item import MutationSpec, TestOutcome

ROOMS = ('functional', 'attention', 'encodings', 'padding', 'backbones', 'checkpoint', 'engine')
#: Seconds after which a change counts as one that hangs.
LIMIT = 1200
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


def stages(path: Path, tests: str) -> Iterator[tuple[str, str]]:
    """Who may notice a change, the cheapest first: the test file of its file's own name, its room's
    tests, TESTS, and with the slow tests the room's again."""
    room = Path('tests', path.parts[1])
    own = room / f'test_{path.stem}.py'
    if own.is_file():
        yield 'own', str(own)
    if room.is_dir():
        yield 'room', str(room)
    yield 'rest', f'{" ".join(tests.split())} --ignore {room}'  # of one line for the shell
    if room.is_dir():
        yield 'slow', f'{room} --all'


def drawn(files: dict[str, list[Path]], number: int, seed: int) -> list[MutationSpec]:
    """As many changes from each target, in turns."""
    source = random.Random(seed)
    every = [[spec for file in found for spec in mutations(file)] for found in files.values()]
    if not any(every):
        sys.exit(f'mutation_run: nothing to change in {" ".join(files)}')
    print(f'{sum(map(len, every))} changes are possible', flush=True)
    turns = [source.sample(specs, min(number, len(specs))) for specs in every]
    return [specs[turn] for turn in range(number) for specs in turns if turn < len(specs)][:number]


def main(python: str, seed: str, tests: str, number: str = '30', *targets: str) -> None:
    pytest = f'{shlex.quote(python)} -m pytest -x -q -p no:cacheprovider'
    paths = [Path(target) for target in targets] or [Path('mmposenc', room) for room in ROOMS]
    files = {str(path): [path] if path.is_file() else sorted(path.rglob('*.py'))
             for path in paths}
    chosen = drawn(files, int(number), int(seed))
    alive, counts, noticed = [], dict.fromkeys(['own', 'room', 'rest', 'slow', 'ALIVE'], 0), set()
    for count, spec in enumerate(chosen, 1):
        by = 'ALIVE'
        for stage, where in stages(spec.module_path, tests):
            # 5: every test there is slow, and none was run.
            run = f'bash -c {shlex.quote(f"{pytest} {where} || [ $? = 5 ]")}'
            result = mutate_and_test([spec], run, LIMIT)
            if result.test_outcome == TestOutcome.INCOMPETENT:
                sys.exit(f'mutation_run: {result.output}')
            if result.test_outcome == TestOutcome.KILLED:
                by = stage
                break
        counts[by] += 1
        failed = re.findall(r'^(?:FAILED|ERROR) (tests/\S+)', result.output, re.MULTILINE)
        noticed.update(failed)
        alive += [result.diff] if by in ('slow', 'ALIVE') else []
        by_whom = failed or result.output.splitlines()[-1:]  # a crash or a time limit names no test
        print(f'{count}/{len(chosen)} {by:5} {spec.module_path}:{spec.start_pos[0]} '
              f'{spec.operator_name.partition("/")[2]} {" ".join(by_whom)}', flush=True)
    print('\n\n'.join(['', *alive]))
    print(f'of {len(chosen)} changes: {counts}')
    # Without a change the tests that noticed one must pass.
    names = ' '.join(map(shlex.quote, sorted({name.partition('[')[0] for name in noticed})))
    if not names:
        return
    outcome, output = run_tests(f'{pytest} --all {names}', 2 * LIMIT)
    if outcome != TestOutcome.SURVIVED:
        sys.exit(f'mutation_run: these tests fail without any change:\n{output[-2000:]}')


if __name__ == '__main__':
    main(*sys.argv[1:])
