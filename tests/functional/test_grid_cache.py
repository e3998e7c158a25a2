"""What is kept of grids: bounded, equal to what is computed afresh, and usable everywhere."""
from collections import Counter

import pytest
import torch
from helpers import tiny_backbones
from helpers.concurrent_calls import in_threads
from helpers.relative_checks import results
from helpers.tiny_backbones import randomize
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from mmposenc.attention import attend
from mmposenc.encodings import IRPE, RotaryEmbedding
from mmposenc.functional import grids as grids_module
from mmposenc.functional.grids import GridCache, cache_of

CACHE = cache_of(torch.device('cpu'))


@pytest.fixture(autouse=True)
def empty():
    CACHE.clear()
    yield
    CACHE.clear()


def test_bounded_and_least_recently_used_goes_first():
    cache, made = GridCache(100), []

    def get(key, size=10):
        def make():
            made.append(key)
            return torch.zeros(size)
        return cache.get_or_make(key, make)

    first = get('a')
    get('b')
    assert get('a') is first and made == ['a', 'b'] and cache.bytes == 80
    get('c')  # 120 bytes: b goes
    assert cache.bytes == 80
    get('a')
    get('b')
    assert made == ['a', 'b', 'c', 'b']
    get('large', 26)  # more than is ever kept
    get('large', 26)
    assert made[-2:] == ['large', 'large'] and cache.bytes <= 100


def run(encoding, grid, train):
    torch.manual_seed(1)
    qkv = torch.randn(3, 1, 2, grid[0] * grid[1], 4, dtype=torch.double)
    if train:
        return results(encoding, qkv, grid, None)
    return [attend(*qkv, encoding, grid)[0]]


@pytest.mark.parametrize('method', ['product', 'cross', 'euclidean'])
@pytest.mark.parametrize('grids', [[(3, 5), (5, 3)], [(25, 26), (26, 25)]])
def test_alternating_grids_are_made_once(method, grids, monkeypatch):
    """Indexed (small) and chunked (large) attention give the same whether kept or computed."""
    encoding = IRPE(4, 2, method, rpe_on='qk').double()
    randomize(encoding, 1.0)
    with monkeypatch.context() as patch:
        patch.setattr(grids_module, 'may_store', lambda: False)
        expected = [run(encoding, grid, True) for grid in grids]
    assert CACHE.bytes == 0
    for _ in range(2):
        for grid, want in zip(grids, expected, strict=True):
            torch.testing.assert_close(run(encoding, grid, True), want, rtol=0, atol=0)
    kept = CACHE.bytes
    assert 0 < kept <= CACHE.max_bytes < 2 ** 20
    for height in range(1, 40):
        run(encoding, (height, 7), False)
    assert CACHE.bytes <= CACHE.max_bytes


def test_made_in_inference_mode_serves_training():
    encoding = IRPE(4, 2, rpe_on='qkv').double()
    with torch.inference_mode():
        first = run(encoding, (3, 5), False)[0]
    assert CACHE.bytes > 0
    torch.testing.assert_close(run(encoding, (3, 5), True)[0], first)


def test_fake_tensors_are_not_kept():
    from torch._subclasses import FakeTensorMode
    encoding = IRPE(4, 2).double()
    with FakeTensorMode(allow_non_fake_inputs=True):
        run(encoding, (3, 5), False)
    assert CACHE.bytes == 0
    run(encoding, (3, 5), False)
    kept = CACHE.bytes
    assert kept > 0
    with FakeTensorMode(allow_non_fake_inputs=True):
        assert type(run(encoding, (3, 5), False)[0]).__name__ == 'FakeTensor'
    assert CACHE.bytes == kept


def test_threads():
    encoding = IRPE(4, 2, rpe_on='qk').double()

    def attended(grid_and_tensors):
        grid, tensors = grid_and_tensors
        return attend(*tensors, encoding, grid)[0]

    inputs = [(grid, torch.randn(3, 1, 2, grid[0] * grid[1], 4, dtype=torch.double))
              for grid in ((3, 5), (5, 3), (4, 4))]
    expected = [attended(each) for each in inputs]
    CACHE.clear()
    for number, found in in_threads(attended, inputs, times=20):
        assert torch.equal(found, expected[number])
    assert CACHE.bytes == sum(size for _, size in CACHE._values.values())


class Operators(TorchDispatchMode):
    """Counts operators, and those that take a tensor of the CPU besides one number."""

    def __init__(self):
        super().__init__()
        self.names, self.of_host = Counter(), []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        name = func.overloadpacket.__name__
        self.names[name] += 1
        if any(isinstance(x, torch.Tensor) and x.device.type == 'cpu' and x.dim()
               for x in tree_leaves((args, kwargs))):
            self.of_host.append(name)
        return func(*args, **(kwargs or {}))


#: Operators that make angles, offsets, places, masks and indices out of sizes.
OF_SIZES = {'arange', 'round', 'roll', 'cos', 'sin', 'complex', 'clamp', 'eye', 'full', 'lt', 'ge'}


@pytest.mark.parametrize('device', ['cpu', 'meta'])
@pytest.mark.parametrize('name, encoding', [
    ('swin', dict(type='mmposenc.RelativePositionBias')), ('vit', dict(type='mmposenc.IRPE')),
    *(('vit', dict(type='mmposenc.RotaryEmbedding', **options)) for options in (
        {}, dict(planes='halves', normalize='separate', periods=[1.0, 90.0]),
        dict(directions=2, clamp=True))),
    ('vit', dict(type='mmposenc.GTA')), ('pvt', dict(type='mmposenc.IRPE', rpe_on='qkv'))])
def test_a_warm_pass_makes_nothing_of_the_grid(name, encoding, device, monkeypatch):
    """Nor does the host send anything to an accelerator."""
    options = dict(pos_encoding=None) if name == 'vit' else {}
    model = tiny_backbones.BUILD[name](rel_pos_encoding=encoding, implementation='reference',
                                       drop_path_rate=0.0, **options)
    images = tiny_backbones.images().to(device)
    model.to(device)(images)
    monkeypatch.setattr(grids_module, 'may_store', lambda: True)
    with Operators() as operators:
        model(images)
    assert OF_SIZES & set(operators.names) == set()
    assert device == 'cpu' or not operators.of_host


def test_what_is_learned_or_a_subclass_computes_is_not_stored():
    class Own(RotaryEmbedding):
        factor = 1.0

        def angles(self, *args):
            return super().angles(*args) * self.factor

    x = torch.randn(1, 2, 6, 8)
    for encoding in (RotaryEmbedding(8, 2, directions='learned'), Own(8, 2)):
        first = encoding.rotate(x, x, (2, 3))[0]
        with torch.no_grad():
            encoding.freqs.mul_(2.0) if encoding.directions == 'learned' else None
        encoding.factor = 2.0
        second = encoding.rotate(x, x, (2, 3))[0]
        assert not torch.allclose(first, second)
