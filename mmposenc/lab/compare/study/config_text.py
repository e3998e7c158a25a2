"""Compares the texts of two configs without running them."""
from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator


def differing_values(old: str, new: str) -> dict[str, tuple[str | None, str | None]]:
    """The dotted keys whose values differ between two configs written in Python, each with both
    values as they are written. The order of keys and the breaks of lines make no difference.

    Raises:
        ValueError: a text is no Python.
    """
    try:
        before, now = (list(_values(ast.parse(text))) for text in (old, new))
    except (SyntaxError, RecursionError, MemoryError) as error:
        raise ValueError(f'it is no Python: {error}') from error
    # They are counted, because the first of two values of one key would run, too.
    differ = (Counter(before) - Counter(now)) + (Counter(now) - Counter(before))
    return {key: (dict(before).get(key), dict(now).get(key)) for key, _ in differ}


def _values(node: ast.AST, key: str = '') -> Iterator[tuple[str, str]]:
    """The keys and values in a part of a config. Whatever is no assignment, dict, list or tuple is
    one value, as it is written."""
    parts: list[tuple[str, ast.AST]] = []
    match node:
        case ast.Module():
            parts = [(each.targets[0].id, each.value) if isinstance(each, ast.Assign)
                     and isinstance(each.targets[0], ast.Name) and len(each.targets) == 1
                     else (ast.unparse(each), each) for each in node.body]
        case ast.Call(func=ast.Name('dict'), args=[]) if all(each.arg for each in node.keywords):
            parts = [(str(each.arg), each.value) for each in node.keywords]
        case ast.Dict() if all(isinstance(each, ast.Constant) for each in node.keys):
            parts = [(str(ast.literal_eval(name)), value)
                     for name, value in zip(node.keys, node.values, strict=True) if name]
        case ast.List() | ast.Tuple():
            parts = [(str(number), each) for number, each in enumerate(node.elts)]
    for name, part in parts:
        yield from _values(part, f'{key}.{name}'.lstrip('.'))
    if not parts:
        text = ast.unparse(node)
        yield key, {'()': '[]', 'dict()': '{}'}.get(text, text)
