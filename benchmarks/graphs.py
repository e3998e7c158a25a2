"""How many graphs torch.compile makes of ten masked batches of other sizes, by block and whole.

    python benchmarks/graphs.py [--model PVT Swin] [--encoding none PEG] [--how blocks]
    python benchmarks/graphs.py --backend aot_eager      # traces the backward pass too

Small models, one block a stage (Swin: two in its second), forward and backward, float32, on a CPU.
'blocks' is what --compile does; 'whole' hands the sizes of the images as a tensor and compiles all
of the model as one function. Seconds are CPU time up to the end of the first step and of all ten;
the difference is the largest of a map or gradient from those of eager mode, over the largest value
of all maps and all gradients. A row that takes more CPU seconds than --limit says so. Eager and
aot_eager are no compilers: 'inductor' generates code, and takes several times as long.
"""
from __future__ import annotations

import argparse
import copy
import signal
import time
from collections.abc import Callable, Sequence
from typing import Any

import torch
from measure import reason
from torch import Tensor, nn
from torch._dynamo.testing import CompileCounterWithBackend
from torch._dynamo.utils import counters

from mmposenc.backbones import PVT, Swin, ViT
from mmposenc.backbones.layers import PatchEmbed
from mmposenc.detr.encoders import DetrEncoder
from mmposenc.engine.compiling import compile_regions
from mmposenc.functional.masking import token_mask
from mmposenc.image_sizes import mask_images

#: Height and width of both images of each batch; two batches have nothing to mask.
BATCHES = [((64, 96), (50, 64)), ((72, 88), (72, 61)), ((61, 93), (61, 93)), ((96, 64), (40, 64)),
           ((80, 80), (48, 80)), ((64, 64), (64, 32)), ((97, 65), (90, 60)), ((88, 72), (88, 70)),
           ((50, 99), (33, 44)), ((66, 70), (66, 70))]
ENCODINGS: dict[str, dict[str, Any]] = {
    'none': {}, 'PEG': dict(pos_encoding=dict(type='PEG')),
    'learned': dict(pos_encoding=dict(type='LearnedPositionEmbedding')),
    'iRPE k': dict(rel_pos_encoding=dict(type='IRPE')),
    'iRPE bias': dict(rel_pos_encoding=dict(type='IRPE', mode='bias')),
    'rotary': dict(rel_pos_encoding=dict(type='RotaryEmbedding2D')),
    'rotary by shares': dict(rel_pos_encoding=dict(type='RotaryEmbedding2D',
                                                   normalize='separate')),
    'PEG, mean': dict(pos_encoding=dict(type='PEG'), pool='gap')}
COMMON = dict(mask_padding=True, img_size=64, drop_path_rate=0.0)
PYRAMID = dict(embed_dims=(8, 8, 16, 16), num_layers=(1,) * 4, num_heads=(1, 1, 2, 2),
               mlp_ratios=(2,) * 4)
Outputs = tuple[list[Tensor], list[Tensor]]


def retinanet(options: dict[str, Any]) -> nn.Module:
    """Backbone and neck of a detector."""
    from mmdet.models import FPN  # after mmposenc
    from mmengine.model import BaseModule

    class Maps(BaseModule):
        def __init__(self) -> None:
            super().__init__()
            self.backbone = PVT(**PYRAMID, **COMMON, **options)
            self.neck = FPN(list(PYRAMID['embed_dims']), 8, 5)

        def forward(self, x: Tensor, sizes: Any) -> Sequence[Tensor]:
            return self.neck(self.backbone(x, sizes))
    return Maps()


class Encoder(nn.Module):
    """Two layers of DETR's encoder on patches of the images."""

    def __init__(self, pos_encoding: Any = None, rel_pos_encoding: Any = None) -> None:
        super().__init__()
        self.embed = PatchEmbed(3, 16, 8, ceil_mode=True)
        self.encoder = DetrEncoder(2, dict(
            self_attn_cfg=dict(embed_dims=16, num_heads=2, rel_pos_encoding=rel_pos_encoding),
            ffn_cfg=dict(embed_dims=16, feedforward_channels=32)), pos_encoding=pos_encoding)

    def forward(self, x: Tensor, sizes: Any) -> tuple[Tensor]:
        x, mask = mask_images(x, sizes, 8)
        tokens, grid = self.embed(x)
        flat = None if mask is None else token_mask(mask)
        out = self.encoder(tokens, None, flat, spatial_shapes=grid)
        # What stands on padding is nobody's, and differs where padding is left out.
        return (out if flat is None else out.masked_fill(flat[..., None], 0),)


MODELS: dict[str, Callable[[dict[str, Any]], nn.Module]] = {
    'PVT': lambda options: PVT(**PYRAMID, **COMMON, **options),
    'ViT': lambda options: ViT(**{**dict(pool=None), **COMMON, **options}, embed_dims=16,
                               num_layers=2, num_heads=2, patch_size=8, mlp_ratio=2.0),
    'Swin': lambda options: Swin(embed_dims=8, num_layers=(1, 2, 1, 1), num_heads=(1, 1, 2, 2),
                                 window_size=4, **COMMON, **options),
    'DETR': lambda options: Encoder(**options),
    'RetinaNet': retinanet}


class TookTooLong(BaseException):
    """More CPU seconds than a row may take; no Exception, which a compiler would catch."""


def stop(*_: Any) -> None:
    raise TookTooLong


def step(model: nn.Module, call: Callable[[Tensor, Any], Sequence[Tensor]], seed: int) -> Outputs:
    """Maps and gradients of one batch."""
    torch.manual_seed(seed)
    sizes = BATCHES[seed]
    x = torch.randn(2, 3, *(max(side) for side in zip(*sizes, strict=True)))
    maps = call(x, sizes)
    loss = sum(one.square().mean() for one in maps)
    grads = torch.autograd.grad(loss, list(model.parameters()), allow_unused=True)
    return [one.detach() for one in maps], [grad for grad in grads if grad is not None]


def apart(found: Outputs, expected: Outputs) -> float:
    """Largest difference over the largest value, of maps or of gradients."""
    return max(max(float((a - b).abs().max()) for a, b in zip(one, other, strict=True))
               / max(float(b.abs().max()) for b in other)
               for one, other in zip(found, expected, strict=True))


def measure(model: nn.Module, how: str, backend: str) -> str:
    """The cells of a row."""
    torch._dynamo.reset()
    counters.clear()
    eager, counter = copy.deepcopy(model), CompileCounterWithBackend(backend)
    # Sets torch's switches too, which a whole model needs as well.
    compile_regions(model if how == 'blocks' else copy.deepcopy(model), backend=counter,
                    dynamic=True)
    call: Callable[..., Any] = model
    if how == 'whole':
        whole = torch.compile(lambda x, sizes: model(x, sizes), backend=counter, dynamic=True)
        call = lambda x, sizes: whole(x, torch.tensor(sizes))  # noqa: E731
    worst, frames, start = 0.0, [], time.process_time()
    for seed in range(len(BATCHES)):
        found = step(model, call, seed)
        if seed == 0:
            first = time.process_time() - start
        frames.append(counter.frame_count)
        worst = max(worst, apart(found, step(eager, eager, seed)))
    return (f'{frames[0]} | {frames[-1]} | {sum(counters["graph_break"].values())} | {first:.0f} | '
            f'{time.process_time() - start:.0f} | {worst:.0e}')


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--model', choices=MODELS, nargs='+', default=list(MODELS))
    parser.add_argument('--encoding', choices=ENCODINGS, nargs='+', default=list(ENCODINGS))
    parser.add_argument('--how', choices=('blocks', 'whole'), nargs='+',
                        default=['blocks', 'whole'])
    parser.add_argument('--backend', choices=('eager', 'aot_eager', 'inductor'), default='eager')
    parser.add_argument('--limit', type=float, default=120, help='CPU seconds a row')
    args = parser.parse_args()
    torch.set_num_threads(1)
    signal.signal(signal.SIGPROF, stop)
    print('| model | encoding | compiled | graphs, first batch | ten | breaks | first step, s '
          '| ten, s | differs by |\n|---|---|---|---|---|---|---|---|---|')
    for name in args.model:
        pools = name not in ('DETR', 'RetinaNet')
        for encoding in (each for each in args.encoding if pools or 'pool' not in ENCODINGS[each]):
            for how in args.how:
                torch.manual_seed(0)
                try:
                    model = MODELS[name](ENCODINGS[encoding]).train()
                    for key, parameter in model.named_parameters():
                        if 'rel_pos_encoding' in key:  # starts from zero
                            nn.init.normal_(parameter)
                    signal.setitimer(signal.ITIMER_PROF, args.limit)
                    cells = measure(model, how, args.backend)
                except TookTooLong:
                    cells = f'more than {args.limit:.0f} s'
                except Exception as error:  # as in measure.row
                    cells = f'failed: {reason(error)}'
                finally:
                    signal.setitimer(signal.ITIMER_PROF, 0)
                print(f'| {name} | {encoding} | {how} | {cells} |', flush=True)


if __name__ == '__main__':
    main()
