"""Table 'forms' of relative.py: every engine of the package, by encoding, size and dtype.

    python benchmarks/relative.py forms --device cuda --dtype bfloat16 --rows 1050  # never tried
    python benchmarks/relative.py forms --tiny                                      # on a CPU

Times are multiples of scaled_dot_product_attention without an encoding, in turns; 'differs' is the
largest difference from the definition over the largest output. A form that cannot run, or that
gives something else, is a row that says so. On a CPU FlexAttention is not compiled and has no
backward pass.
"""
from __future__ import annotations

import argparse

import torch
import torch.nn.functional as F
from measure import Failed, Paired, difference, header, paired_times, peak_memory, row
from relative_inputs import SIZES, Size, both, chosen, make_encoding, make_inputs, ours

from mmposenc.functional import Grid

#: Also PVT's first stage at 800x1344, whose keys lie on a grid of eighths.
FORM_SIZES = {**SIZES, 67200: Size(2, 1, 200, 336, 64, 0, Grid(25, 42, 8.0, 8.0))}
#: One of each kind of term; tables on values last.
FORM_NAMES = ('IRPE product k', 'IRPE product bias', 'RelativePositionBias', 'SASARPE',
              'IRPE cross k', 'LogSpacedCPB', 'ShawRPE', 'TransformerXLRPE', 'HuangRPE',
              'QueryRelative2D', 'RotaryEmbedding2D', 'IRPE product qkv')
FORMS = ('definition', 'auto', 'pieces', 'fused', 'flex')
COMPILED = 'definition, compiled'
#: Most that 'differs' may say.
MOST = {'float32': 1e-4, 'bfloat16': 3e-2, 'float16': 5e-3}


def forms(args: argparse.Namespace) -> None:
    """All of them against SDPA without an encoding."""
    print(header(args))
    print('| encoding | L | form | forward, ms | / SDPA | training, ms | / SDPA | forward, MiB | '
          'training, MiB | differs |\n|---|---|---|---|---|---|---|---|---|---|')
    for length, size in chosen(args, FORM_SIZES).items():
        for name in FORM_NAMES:
            if not args.only or any(part in name for part in args.only):
                with row(name, length):
                    measure(name, size, args)


def measure(name: str, size: Size, args: argparse.Namespace) -> None:
    """The rows of one encoding at one size."""
    inputs, encoding = make_inputs(size, args), make_encoding(name, size, args)
    runs = {'SDPA': F.scaled_dot_product_attention,
            **{form: ours(encoding, size, form) for form in FORMS}}
    if args.device == 'cuda':
        runs[COMPILED] = torch.compile(runs['definition'], dynamic=False)
    with torch.no_grad():
        expected = runs['definition'](*inputs[:3])
        differs = {form: difference(lambda run=run: run(*inputs[:3]), expected,
                                    MOST[args.dtype])
                   for form, run in runs.items() if form != 'SDPA'}
    right = {form: run for form, run in runs.items()
             if not isinstance(differs.get(form), Failed)}
    cells: dict[str, list[str]] = {form: [] for form in right}
    peaks: dict[str, list[str]] = {form: [] for form in right}
    for kind in both(right, inputs, encoding):
        found: dict[str, Paired] = paired_times(kind, args.repeats, args.device)
        for form, run in kind.items():
            cells[form] += [f'{found[form].seconds * 1e3:.3f}', f'{found[form].ratio:.2f}']
            peaks[form].append(f'{peak_memory(run, args.device) / 2 ** 20:.0f}')
    for form in runs:
        values = [*cells[form], *peaks[form]] if form in right else ['-'] * 6
        print(f'| {name} | {size.length} | {form} | {" | ".join(values)} | '
              + ('none' if form == 'SDPA' else f'{differs[form]:.0e}') + ' |', flush=True)
