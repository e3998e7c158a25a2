"""Weights out of an ONNX graph, under the names that its model had in PyTorch.

A graph is read as bytes of the protobuf wire format, and only its tensors of float32 and which node
takes which tensor: nothing in it is run, and no file that it names is opened.
"""
from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

# Field numbers of onnx.proto: ModelProto, GraphProto, NodeProto, TensorProto.
_GRAPH = 7
_NODE, _INITIALIZER = 1, 5
_INPUT, _OUTPUT, _OP_TYPE = 1, 2, 4
_DIMS, _DATA_TYPE, _NAME, _RAW_DATA = 1, 2, 8, 9
_FLOAT = 1


class Node(NamedTuple):
    """An operation, and the names of what it takes and gives."""

    op_type: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]


class Graph(NamedTuple):
    """The float32 tensors that a graph holds, and its nodes in order."""

    tensors: dict[str, np.ndarray]
    nodes: list[Node]


def read_graph(data: bytes) -> Graph:
    """Read the tensors and nodes of an ONNX model.

    Raises:
        ValueError: for bytes that are no such model or cut short, or a float32 tensor whose
            numbers lie elsewhere than in the graph itself.
    """
    tensors: dict[str, np.ndarray] = {}
    nodes: list[Node] = []
    for graph in _messages(memoryview(data), _GRAPH):
        for number, value in _fields(graph):
            if number == _NODE:
                nodes.append(_node(_message(value)))
            elif number == _INITIALIZER:
                tensors |= _tensor(_message(value))
    if not nodes:
        raise ValueError('no ONNX model: it has no nodes')
    return Graph(tensors, nodes)


def named_weights(graph: Graph) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    """The tensors of a graph under their names in PyTorch, and those without one.

    An exporter writes ``x @ weight.T`` as a product with an anonymous, transposed tensor; what is
    added to the product is the layer's bias, which kept its name: ``key.bias`` tells that it is
    ``key.weight``.

    Raises:
        ValueError: if two products are added to the same bias.
    """
    adds = {name: node for node in graph.nodes if node.op_type == 'Add' for name in node.inputs}
    named = {name: value for name, value in graph.tensors.items() if '::' not in name}
    anonymous = {name: value for name, value in graph.tensors.items() if name not in named}
    for node in graph.nodes:
        if node.op_type != 'MatMul' or len(node.inputs) != 2 or node.inputs[1] not in anonymous:
            continue
        add = adds.get(node.outputs[0])
        bias = next((name for name in add.inputs if name in named), '') if add else ''
        if not bias.endswith('.bias'):
            continue
        name = f'{bias.removesuffix("bias")}weight'
        if name in named:
            raise ValueError(f'{name} would be two tensors, of which one is {node.inputs[1]}')
        named[name] = np.ascontiguousarray(anonymous.pop(node.inputs[1]).T)
    return named, anonymous


def _node(data: memoryview) -> Node:
    texts: dict[int, list[str]] = {_INPUT: [], _OUTPUT: [], _OP_TYPE: []}
    for number, value in _fields(data):
        if number in texts:
            texts[number].append(_text(value))
    return Node(''.join(texts[_OP_TYPE]), tuple(texts[_INPUT]), tuple(texts[_OUTPUT]))


def _tensor(data: memoryview) -> dict[str, np.ndarray]:
    """A tensor by its name; none where it is not of float32."""
    shape: list[int] = []
    kind, name, raw = 0, '', None
    for number, value in _fields(data):
        if number == _DIMS:
            # One number, or several packed into one field.
            shape += [value] if isinstance(value, int) else list(_numbers(value))
        elif number == _DATA_TYPE and isinstance(value, int):
            kind = value
        elif number == _NAME:
            name = _text(value)
        elif number == _RAW_DATA:
            raw = _message(value)
    if kind != _FLOAT:
        return {}
    count = int(np.prod(shape, dtype=object))
    if raw is None or len(raw) != 4 * count:
        raise ValueError(f'tensor {name!r} of shape {tuple(shape)} needs {4 * count} bytes in the '
                         f'graph itself, and has {0 if raw is None else len(raw)}')
    return {name: np.frombuffer(raw, '<f4').reshape(shape)}


def _fields(data: memoryview) -> Iterator[tuple[int, int | memoryview]]:
    """Numbers and values of the fields of a protobuf message."""
    at = 0
    while at < len(data):
        key, at = _number(data, at)
        value: int | memoryview
        if key & 7 == 0:
            value, at = _number(data, at)
        else:
            if key & 7 == 2:
                length, at = _number(data, at)
            elif key & 7 in (1, 5):
                length = 8 if key & 7 == 1 else 4
            else:
                raise ValueError(f'no ONNX model: a field of kind {key & 7}')
            value, at = data[at:at + length], at + length
        if at > len(data):
            raise ValueError('no ONNX model, or cut short')
        yield key >> 3, value


def _messages(data: memoryview, wanted: int) -> Iterator[memoryview]:
    for number, value in _fields(data):
        if number == wanted:
            yield _message(value)


def _message(value: int | memoryview) -> memoryview:
    if isinstance(value, int):
        raise ValueError('no ONNX model: a number in the place of a message')
    return value


def _text(value: int | memoryview) -> str:
    return bytes(_message(value)).decode('utf-8', 'replace')


def _numbers(data: memoryview) -> Iterator[int]:
    at = 0
    while at < len(data):
        number, at = _number(data, at)
        yield number


def _number(data: memoryview, at: int) -> tuple[int, int]:
    """A whole number in 7 bits a byte, lowest first, and where it ends."""
    number = 0
    for shift in range(0, 70, 7):
        if at >= len(data):
            raise ValueError('no ONNX model, or cut short')
        byte = data[at]
        at += 1
        number |= (byte & 127) << shift
        if byte < 128:
            return number, at
    raise ValueError('no ONNX model: a number of more than 64 bits')
