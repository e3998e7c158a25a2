"""FlexAttention's kernels of every relative encoding, compiled for sm_90 without a GPU; none runs.

    python benchmarks/flex_sm90.py [--only NAME ...] [--dtype bfloat16 ...] [--head-dims 32 ...]

Tensors that hold no numbers say that they lie on an H200, torch writes the kernels that it would
run there, forward and backward, and Triton's own ptxas compiles them. A cell is the shared memory
of a block, the registers of a thread and what spills over them; or what was refused, and by whom.

Needs g++ and the version of Triton that torch's CUDA build asks for (3.7.1 for torch 2.13); the
first row takes longest. Several functions of torch are replaced for the process.
"""
from __future__ import annotations

import argparse
import contextlib
import importlib.util
import io
import os
import re
import sys
import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import torch
from measure import reason
from torch import Tensor, nn

TESTS = Path(__file__).parent.parent / 'tests'
sys.path[:0] = [str(TESTS / 'accelerator'), str(TESTS / 'encodings')]
import examples  # noqa: E402
from stand_in import install, leave  # noqa: E402

from mmposenc.attention import attend  # noqa: E402
from mmposenc.attention.fast import flex  # noqa: E402
from mmposenc.encodings import RelativeEncoding  # noqa: E402
from mmposenc.functional import Grid  # noqa: E402

CARD = SimpleNamespace(
    name='H200', gcnArchName='', major=9, minor=0, multi_processor_count=132, warp_size=32,
    regs_per_multiprocessor=65536, max_threads_per_multi_processor=2048,
    max_threads_per_block=1024, L2_cache_size=60 * 2 ** 20, total_memory=141 * 2 ** 30)
#: Bytes of shared memory that a block may ask for.
SHARED = 232448
DTYPES = {'bfloat16': torch.bfloat16, 'float16': torch.float16, 'float32': torch.float32}
GRID, HEADS = Grid(25, 42), 8


def pretend(folder: Path) -> None:
    """What torch and Triton ask of a card, answered for one that is not there."""
    install(folder)
    from torch._dynamo.device_interface import CudaInterface
    from torch._inductor import config
    from torch._inductor.runtime import triton_helpers
    from triton.backends.compiler import GPUTarget
    from triton.runtime import driver
    answers: dict[str, Callable[..., Any]] = {
        'is_available': lambda: True, 'is_initialized': lambda: True, 'device_count': lambda: 1,
        'current_device': lambda: 0, 'get_device_properties': lambda device=None: CARD,
        'get_device_capability': lambda device=None: (CARD.major, CARD.minor),
        'get_device_name': lambda device=None: CARD.name, 'synchronize': lambda device=None: None,
        'get_rng_state': lambda device=None: torch.zeros(16, dtype=torch.uint8),
        'set_rng_state': lambda state, device=None: None,
        '_exchange_device': lambda device: 0, '_maybe_exchange_device': lambda device: 0}
    for name, answer in answers.items():
        setattr(torch.cuda, name, answer)
    for name in ('current_device', 'device_count', 'get_device_properties', 'synchronize'):
        setattr(CudaInterface, name, staticmethod(answers[name]))
    for name in ('exchange_device', 'maybe_exchange_device', 'get_raw_stream'):
        setattr(CudaInterface, name, staticmethod(lambda device: 0))
    torch._C._cuda_getCurrentRawStream = lambda device: 0  # type: ignore[assignment]
    triton_helpers.set_driver_to_gpu = lambda: None
    driver.set_active(SimpleNamespace(
        get_current_target=lambda: GPUTarget('cuda', 90, 32), get_current_device=lambda: 0,
        get_active_torch_device=lambda: torch.device('cuda', 0), utils=SimpleNamespace(
            get_device_properties=lambda device: {'max_shared_mem': SHARED})))
    config.compile_threads = 1  # in this process, which alone knows all this
    config.fx_graph_cache = False


def watch(seen: dict[str, str]) -> None:
    """Compile FlexAttention's kernels alone, launch none, and note what ptxas says of each."""
    import triton
    from torch._inductor.runtime.triton_heuristics import CachingAutotuner
    from triton.backends.nvidia.compiler import CUDABackend
    triton.knobs.nvidia.dump_ptxas_log = triton.knobs.compilation.always_compile = True
    precompile, make_cubin = CachingAutotuner.precompile, CUDABackend.make_cubin

    def compile_flex(self: Any, *args: Any, **kwargs: Any) -> None:
        if 'flex_attention' in self.inductor_meta['kernel_name'] and 'tem' in self.fn.__name__:
            precompile(self, *args, **kwargs)

    def noted(self: Any, src: Any, metadata: dict[str, Any], *args: Any) -> bytes:
        log = io.StringIO()
        with contextlib.redirect_stdout(log):
            cubin: bytes = make_cubin(self, src, metadata, *args)
        way = 'backward' if 'backward' in metadata['name'] else 'forward'
        seen[way] = said(log.getvalue(), metadata['shared'])
        return cubin
    CachingAutotuner.precompile, CachingAutotuner._make_launchers = compile_flex, lambda self: None
    CUDABackend.make_cubin = noted


def said(log: str, shared: int) -> str:
    """A cell of the table, out of what ``ptxas -v`` prints of one kernel."""
    registers = re.search(r'Used (\d+) registers', log)
    spills = re.search(r'(\d+) bytes spill stores, (\d+) bytes spill loads', log)
    if registers is None or spills is None:
        return 'failed: ptxas said nothing of registers'
    if shared > SHARED:
        return f'failed: {shared} bytes of shared memory, {SHARED} are there'
    return f'{shared / 1024:.0f} KiB, {registers[1]}, {sum(map(int, spills.groups()))} B'


def backend(graph: Any, inputs: Any) -> Any:
    """Inductor's own way, but that graphs are walked through with the same empty tensors."""
    from functorch.compile import make_boxed_func
    from torch._dynamo.backends.common import aot_autograd
    from torch._functorch.partitioners import min_cut_rematerialization_partition
    from torch._inductor.compile_fx import compile_fx_inner
    from torch._inductor.decomposition import select_decomp_table

    def compiler(graph: Any, inputs: Any, is_backward: bool) -> Any:
        compile_fx_inner(graph, inputs, is_backward=is_backward)
        return make_boxed_func(graph.forward)
    return aot_autograd(
        fw_compiler=partial(compiler, is_backward=False),
        bw_compiler=partial(compiler, is_backward=True), decompositions=select_decomp_table(),
        partition_fn=partial(min_cut_rematerialization_partition, compiler='inductor'),
    )(graph, inputs)


def empty(module: nn.Module) -> None:
    """Put parameters and buffers without numbers into a module."""
    for part in module.modules():
        for name, x in part._parameters.items():
            if x is not None:
                part._parameters[name] = nn.Parameter(x.new_empty(x.shape, device='cuda'))
        for name, b in part._buffers.items():
            if b is not None:
                part._buffers[name] = b.new_empty(b.shape, device='cuda')


def compiled(name: str, dtype: torch.dtype, dims: int, args: argparse.Namespace,
             seen: dict[str, str]) -> dict[str, str]:
    """Cells of one encoding: 'forward' and 'backward'."""
    from torch._inductor.utils import clear_caches
    from torch._subclasses.fake_tensor import FakeTensorMode
    torch._dynamo.reset()
    clear_caches()  # a kernel like that of an earlier row would not be compiled
    flex.compiled.cache_clear()
    seen.clear()
    encoding = examples.relative(name, GRID, head_dims=dims, num_heads=HEADS, full_size=True,
                                 num_prefix_tokens=args.prefix).to(dtype)
    length = args.prefix + GRID.num_cells
    try:
        with FakeTensorMode(allow_non_fake_inputs=True), mock.patch.object(
                torch, 'compile', partial(torch.compile, backend=backend)):
            empty(encoding)
            q, k, v = (torch.empty(2, length, HEADS, dims, device='cuda', dtype=dtype,
                                   requires_grad=True).transpose(1, 2) for _ in range(3))
            hidden = torch.zeros(2, length, dtype=torch.bool, device='cuda')
            out: Tensor = attend(q, k, v, encoding, GRID, form='flex',
                                 key_padding_mask=hidden if args.padded else None)[0]
            out.sum().backward()
    except Exception as error:
        seen.setdefault('backward' if 'forward' in seen else 'forward', f'failed: {reason(error)}')
    return dict(seen)


def with_score_mods() -> Iterator[str]:
    """Names of encodings that FlexAttention can compute."""
    for name in examples.RELATIVE:
        encoding: RelativeEncoding = examples.relative(name, GRID, head_dims=32, num_heads=HEADS,
                                                       full_size=True)
        terms = encoding.terms(GRID, GRID)
        if terms and all(term.has_score_mod for term in terms):
            yield name


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--only', nargs='+', metavar='NAME', help='encodings')
    parser.add_argument('--dtype', nargs='+', choices=DTYPES, default=list(DTYPES))
    parser.add_argument('--head-dims', nargs='+', type=int, default=[32, 64])
    parser.add_argument('--prefix', type=int, default=0, help='tokens in front of the cells')
    parser.add_argument('--padded', action='store_true', help='with a mask of padded keys')
    return parser.parse_args()


def main() -> None:
    args = parse_args()
    if importlib.util.find_spec('triton') is None:
        sys.exit("flex_sm90.py needs Triton, which torch's CPU build comes without: pip install "
                 'triton==3.7.1 (for torch 2.13), in an environment of its own')
    with tempfile.TemporaryDirectory() as folder:
        os.environ.update(TRITON_CACHE_DIR=f'{folder}/triton', TORCHINDUCTOR_CACHE_DIR=folder)
        seen: dict[str, str] = {}
        pretend(Path(folder))
        watch(seen)
        print('| encoding | dtype | head_dims | forward | backward |\n|---|---|---|---|---|')
        for name in args.only or with_score_mods():
            for dtype in args.dtype:
                for dims in args.head_dims:
                    cells = compiled(name, DTYPES[dtype], dims, args, seen)
                    print(f'| {name} | {dtype} | {dims} | {cells.get("forward", "-")} | '
                          f'{cells.get("backward", "-")} |', flush=True)
    leave(0)


if __name__ == '__main__':
    main()
