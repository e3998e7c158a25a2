"""Kernels that a model starts, counted on a CPU: what bounds small models on a GPU.

    python benchmarks/launches.py                          # ours / the peer's, forward and step
    python benchmarks/launches.py --case 'Swin-T' --names  # which operators ours are
    pip install transformers; python benchmarks/launches.py --case RT-DETR-R18

Two images of 224x224 pixels, training mode, float32. Attention is computed as on a GPU: by the
reference, and scaled_dot_product_attention is one operator, its backward pass another. What is
stored between passes is stored already. Views and empty tensors do not count.
"""
from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Callable
from typing import Any
from unittest import mock

import torch
from measure import row
from mmengine.logging import MMLogger
from models import IRPE, LEARNED, Models, detr, loss_of, pvt, retinanet, rt_detr, swin
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes

from mmposenc.attention.multihead import MultiheadAttention
from mmposenc.attention.terms import Problem
from mmposenc.backbones import DeiT, ViT
from mmposenc.functional import grids

#: Operators that start nothing, beside views.
FREE = ('empty', 'empty_like', 'empty_strided', 'new_empty', 'new_empty_strided', 'promote_types',
        '_unsafe_view', '_reshape_alias', 'detach')
SDPA = F.scaled_dot_product_attention


class FusedAttention(torch.autograd.Function):
    """scaled_dot_product_attention as one operator, whose parts are not counted."""

    @staticmethod
    def forward(ctx: Any, counts: Counter[str], run: Callable[..., Tensor], *given: Tensor
                ) -> Tensor:
        ctx.counts, ctx.run = counts, run
        ctx.save_for_backward(*given)
        counts['attention'] += 1
        with _disable_current_modes():
            return run(*given)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        ctx.counts['attention_backward'] += 1
        with _disable_current_modes(), torch.enable_grad():
            given = [x.detach().requires_grad_(x.is_floating_point()) for x in ctx.saved_tensors]
            known = [x for x in given if x.requires_grad]
            found = iter(torch.autograd.grad(ctx.run(*given), known, grad))
        return None, None, *(next(found) if x.requires_grad else None for x in given)


class Launches(TorchDispatchMode):
    """Counts the operators of a call that compute."""

    def __init__(self) -> None:
        super().__init__()
        self.names: Counter[str] = Counter()

    def attention(self, q: Tensor, k: Tensor, v: Tensor, attn_mask: Tensor | None = None,
                  dropout_p: float = 0.0, **options: Any) -> Tensor:
        """What stands in for torch's function while operators are counted."""
        mask = [] if attn_mask is None else [attn_mask]
        return FusedAttention.apply(self.names, lambda q, k, v, mask=None: SDPA(
            q, k, v, mask, dropout_p, **options), q, k, v, *mask)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func.overloadpacket.__name__
        returns = func._schema.returns
        is_view = any(each.alias_info and not each.alias_info.is_write for each in returns)
        if not is_view and name not in FREE:
            self.names[name] += 1
        return func(*args, **(kwargs or {}))


def timm_and(peer: str, own: Callable[[], nn.Module]) -> Callable[[int, int], Models]:
    """timm's model and ours."""
    def build(height: int, width: int) -> Models:
        import timm
        return {'timm': timm.create_model(peer, num_classes=0), 'ours': own()}
    return build


#: Models by row, the peer first and ours second.
CASES: dict[str, Callable[[int, int], Models]] = {
    'DeiT-S': timm_and('deit_small_patch16_224', lambda: DeiT('small', pos_encoding=LEARNED)),
    'DeiT-S, iRPE on keys / none': timm_and('deit_small_patch16_224', lambda: DeiT(
        'small', pos_encoding=LEARNED, rel_pos_encoding=IRPE)),
    'RoPE-ViT-S': timm_and('vit_small_patch16_rope_224', lambda: ViT('rope-vit-small-axial')),
    'DINOv3-S': timm_and('vit_small_patch16_dinov3', lambda: ViT('dinov3-small')),
    'EVA-02-S': timm_and('eva02_small_patch14_224', lambda: ViT('eva02-small')),
    'Swin-T': swin, 'PVT-tiny': pvt, 'DETR-R50': detr, 'RetinaNet PVT-tiny': retinanet,
    'RT-DETR-R18': rt_detr, 'RT-DETR-R18 without losses': rt_detr}
#: Share of padding in the second image of detectors.
PADDING = {'DETR-R50': 0.2, 'RetinaNet PVT-tiny': 0.2, 'RT-DETR-R18': 0.0,
           'RT-DETR-R18 without losses': 0.0}


def counted(model: nn.Module, padding: float | None, side: int, has_losses: bool = True
            ) -> tuple[Counter[str], Counter[str]]:
    """Operators of a forward pass, and of a step with gradients of all weights. Without losses the
    model is in evaluation, and the gradients are those of its outputs."""
    for module in model.modules():
        if isinstance(module, MultiheadAttention):
            module.implementation = 'reference'
    model.train(has_losses)
    leaves = [each for each in model.parameters() if each.requires_grad]
    run = loss_of(model, torch.randn(2, 3, side, side), padding,
                  'training' if has_losses else 'inference')
    loss = run if has_losses else lambda: sum(out[-1].mean() for out in run())
    loss()
    found = []
    for each in (loss, lambda: torch.autograd.grad(loss(), leaves, allow_unused=True)):
        with (Launches() as counted, mock.patch.object(Problem, 'on_cpu', False),
              mock.patch.object(grids, 'may_store', lambda: True),
              mock.patch.object(F, 'scaled_dot_product_attention', counted.attention)):
            each()
        found.append(counted.names)
    return found[0], found[1]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--case', choices=sorted(CASES), action='append')
    parser.add_argument('--names', action='store_true', help='also the operators of both')
    args = parser.parse_args()
    MMLogger.get_current_instance().setLevel('ERROR')  # which weights an encoding adds
    print('| model, ours / peer | forward | step |\n|---|---|---|')
    for name in args.case or CASES:
        with row(name):
            models = list(CASES[name](224, 224).values())[1::-1]
            found = [counted(each, PADDING.get(name), 224, 'without' not in name)
                     for each in models]
            cells = (' / '.join(f'{sum(each):,}' for each in map(Counter.values, mode))
                     for mode in zip(*found, strict=True))
            print(f'| {name} | {" | ".join(cells)} |', flush=True)
            for (forward, step), who in zip(found, ('ours', 'peer'), strict=True):
                if args.names:
                    print(f'{who}, forward: {forward.most_common()}')
                    print(f'{who}, backward: {(step - forward).most_common()}')


if __name__ == '__main__':
    main()
