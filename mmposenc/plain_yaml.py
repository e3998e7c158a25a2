"""Reads YAML as data: no tag runs code, and no alias makes a short text long."""
from __future__ import annotations

from typing import Any

import yaml

#: How many values the aliases of a file may stand for in all.
MOST_VALUES = 100_000


class PlainLoader(yaml.SafeLoader):
    """PyYAML's safe loader, for ``yaml.load(text, PlainLoader)``. It is the one written in Python:
    deep nesting is a RecursionError here, but ends the process in the compiled one.

    Raises:
        yaml.YAMLError: the text is no YAML, has a tag that Python would build an object for, or
            aliases that stand for too many values.
    """

    def get_single_node(self) -> Any:
        node, sizes = super().get_single_node(), dict[int, int]()
        if node is not None and _size_without_aliases(node, sizes) - len(sizes) >= MOST_VALUES:
            raise yaml.YAMLError(f'its aliases (*name) stand for more than {MOST_VALUES:,} values; '
                                 'write fewer')
        return node


def _size_without_aliases(node: yaml.Node, sizes: dict[int, int]) -> int:
    """How many values a node has when each alias is written out."""
    if id(node) not in sizes:
        sizes[id(node)] = MOST_VALUES  # of an alias inside of what it names
        parts = [] if isinstance(node, yaml.ScalarNode) else node.value
        pairs = [part if isinstance(part, tuple) else (part,) for part in parts]
        sizes[id(node)] = 1 + sum(_size_without_aliases(each, sizes)
                                  for pair in pairs for each in pair)
    return sizes[id(node)]


# mmengine writes a tuple with this tag.
PlainLoader.add_constructor('tag:yaml.org,2002:python/tuple',
                            lambda loader, node: tuple(loader.construct_sequence(node, deep=True)))
