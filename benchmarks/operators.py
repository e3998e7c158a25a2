"""PyTorch forms of the operators against torchvision's compiled kernels for a CPU, paired.

    python benchmarks/operators.py                    # where torchvision's binary loads
    python benchmarks/operators.py --stub /usr/local/cuda/lib64/libcudart.so.13
    python benchmarks/operators.py --device cuda      # its kernels for a GPU; the forms on the GPU

The binary of a CUDA build loads beside a CPU torch when something answers for the CUDA libraries
that it was linked with: ``--stub`` makes two empty ones with ``gcc`` and ``nm``, in a temporary
folder, and loads CUDA's runtime from the file named. Nothing of them is called on a CPU.
"""
from __future__ import annotations

import argparse
import ctypes
import subprocess
import sys
import tempfile
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from measure import add_arguments, header, paired_times, parse
from torch import Tensor


def symbols(path: Path, kind: str) -> set[str]:
    """Names that a library defines or wants (weak ones left out)."""
    lines = subprocess.run(['nm', '-D', f'--{kind}-only', path], capture_output=True, text=True,
                           check=True).stdout.splitlines()
    return {line.split()[-1].partition('@')[0] for line in lines if line.split()[-2] not in 'wv'}


def load_stubs(runtime: str) -> None:
    """Puts functions that abort in the place of CUDA's, so that torchvision's binary loads."""
    spec = find_spec('torchvision')
    assert spec is not None and spec.origin is not None
    wanted = symbols(Path(spec.origin).with_name('_C.so'), 'undefined')
    libraries = Path(torch.__file__).parent / 'lib'
    for name in ('libtorch_cpu.so', 'libc10.so', 'libtorch_python.so'):
        wanted -= symbols(libraries / name, 'defined')
    wanted = {name for name in wanted if '4cuda' in name}
    ctypes.CDLL(runtime, ctypes.RTLD_GLOBAL)
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder, 'stub.c')
        source.write_text('#include <stdlib.h>\n' + ''.join(
            f'void f{i}(void) __asm__("{name}"); void f{i}(void) {{ abort(); }}\n'
            for i, name in enumerate(sorted(wanted))))
        for name in ('libc10_cuda.so', 'libtorch_cuda.so'):
            file = Path(folder, name)
            subprocess.run(['gcc', '-shared', '-fPIC', f'-Wl,-soname,{name}', '-x', 'c',
                            source if 'torch' in name else '/dev/null', '-o', file], check=True)
            ctypes.CDLL(str(file), ctypes.RTLD_GLOBAL)


def boxes(count: int, size: float) -> tuple[Tensor, Tensor, Tensor]:
    """Boxes (count, 4), scores and one of 80 classes."""
    generator = torch.Generator().manual_seed(0)
    centre = torch.rand(count, 2, generator=generator) * size
    extent = torch.rand(count, 2, generator=generator) * 80 + 4
    return (torch.cat([centre - extent / 2, centre + extent / 2], 1),
            torch.rand(count, generator=generator),
            torch.randint(80, (count,), generator=generator))


def suppression(count: int, size: float, many: bool, forms: Any, kernels: Any, like: Tensor
                ) -> dict[str, Callable[[], object]]:
    """nms or batched_nms: the kernel, and the same function with our nms in its place."""
    import torchvision
    module = torchvision.ops.boxes
    corners, scores, labels = (each.to(like.device) for each in boxes(count, size))

    def call(nms: Callable[..., Tensor]) -> Tensor:
        if not many:
            return nms(corners, scores, 0.5)
        before, module.nms = module.nms, nms
        try:
            return module.batched_nms(corners, scores, labels, 0.5)
        finally:
            module.nms = before

    assert torch.equal(call(kernels.nms), call(forms.nms))
    return {'torchvision': lambda: call(kernels.nms), 'this project': lambda: call(forms.nms)}


def convolution(channels: int, height: int, width: int, forms: Any, kernels: Any, like: Tensor
                ) -> dict[str, Callable[[], object]]:
    """A training step of a modulated convolution of two images."""
    torch.manual_seed(0)
    x, grad = torch.randn(2, 2, channels, height, width).to(like).unbind()
    tensors = [x, torch.randn(channels, channels, 3, 3).to(like) / channels,
               torch.randn(2, 18, height, width).to(like), torch.rand(2, 9, height, width).to(like),
               torch.zeros(channels).to(like)]
    options = (1, 1, 1, 1, 1, 1, 1, 1, True)

    def step(module: Any) -> Tensor:
        out: Tensor = module.deform_conv2d(*tensors, *options)
        module._deform_conv2d_backward(grad, *tensors, *options)
        return out

    torch.testing.assert_close(step(kernels), step(forms), atol=1e-3, rtol=1e-3)
    return {'torchvision': lambda: step(kernels), 'this project': lambda: step(forms)}


def pooling(count: int, forms: Any, kernels: Any, like: Tensor) -> dict[str, Callable[[], object]]:
    """A training step of RoIAlign 7 x 7 on 256 channels."""
    torch.manual_seed(0)
    x = torch.randn(2, 256, 50, 84).to(like)
    corners = boxes(count, 1333)[0].to(like) / torch.tensor([1, 1.6] * 2).to(like)
    rois = torch.cat([torch.arange(count).to(like)[:, None] % 2, corners], 1)
    grad = torch.randn(count, 256, 7, 7).to(like)

    def step(module: Any) -> Tensor:
        out: Tensor = module.roi_align(x, rois, 1 / 16, 7, 7, 0, True)
        module._roi_align_backward(grad, rois, 1 / 16, 7, 7, *x.shape, 0, True)
        return out

    torch.testing.assert_close(step(kernels), step(forms), atol=1e-4, rtol=1e-4)
    return {'torchvision': lambda: step(kernels), 'this project': lambda: step(forms)}


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    add_arguments(parser, repeats=9)
    parser.add_argument('--stub', metavar='LIBCUDART', help='load a CUDA build on a CPU')
    args = parse(parser, argv)
    if args.stub:
        load_stubs(args.stub)
    import torchvision
    if not torchvision.extension._has_ops():
        sys.exit("error: torchvision's binary does not load here; see --help for --stub")
    import mmposenc  # noqa: F401
    from mmposenc.compat import deform_conv, roi_align, torchvision_forms
    # The forms themselves, which on a GPU would call the kernels that they are compared with.
    deform_conv.has_kernel = roi_align.has_kernel = lambda name, like: False
    like = torch.zeros((), dtype=getattr(torch, args.dtype), device=args.device)
    given = (torchvision_forms, torch.ops.torchvision, like)
    sizes = (8, 6, 8) if args.tiny else (128, 100, 168)
    cases = {f'{"batched_" * many}nms, {n} boxes': (suppression, (n, size, many))
             for many in (False, True)
             for n, size in (((100, 500),) if args.tiny else ((1000, 800), (2000, 1000),
                                                              (10000, 1333)))}
    cases['deformable convolution, {} channels of {} x {}'.format(*sizes)] = (convolution, sizes)
    cases['deformable convolution, 256 channels of 25 x 42'] = (convolution, (256, 25, 42))
    cases['RoIAlign'] = (pooling, (8 if args.tiny else 512,))
    print(header(args))
    print('| | torchvision, ms | this project, ms | ratio |\n|---|---|---|---|')
    for name, (make, options) in cases.items():
        with torch.no_grad():
            found = paired_times(make(*options, *given), args.repeats, args.device)
        theirs, own = found['torchvision'], found['this project']
        print(f'| {name} | {theirs.seconds * 1e3:.2f} | {own.seconds * 1e3:.2f} | '
              f'{own.ratio:.2f} |', flush=True)


if __name__ == '__main__':
    main()
