"""Write docs/models.md and model-index.yml from the metafiles of configs/.

    python tools/model_table.py            # write both
    python tools/model_table.py --check    # change nothing; fail where one is out of date
"""
import sys
from pathlib import Path
from typing import Any

import yaml

from mmposenc.command_line import Parser, reported

ROOT = Path(__file__).resolve().parents[1]
INTRO = """# Classification models

Made by `python tools/model_table.py` from `configs/classification/*/metafile.yml`; don't edit.
Nothing here was trained by this project: accuracies are the papers', and "-" where they
have none. See docs/results.md for what was trained.

- Parameters and multiply-accumulates (MACs, in millions, head included, one image of the size the
  config tests at: 224 x 224, or 256, 384 or CIFAR-10's 32 by its name) are counted on the
  built model by `tools/count_model.py`. MACs are matrix products and convolutions; value terms of
  iRPE are counted as in its release, a vector for each pair of tokens, and cost less here; means of
  ContextPool are not counted, as in its paper (docs/context_pool.md).
- "Reference" is the paper's or the release's number; the difference to it follows: "=" where they
  agree to the last digit given, rounded or cut.
"""
MISSING = """
## Rows of the papers without a config

- CPVT, Table 13: ResNet-18 has no attention that would take an encoding; mmpretrain, mmdet and
  mmseg have its configs.
- CPVT, Table 15: ConViT's gated attention, CoAtNet's convolutional stages and CvT's strided
  projections are other blocks than those of the backbones here. (One block with CvT's projections,
  Table 16, is here.)
- CPVT, App. D.2 (D.1 in its first version): lambda layers (5.9 million parameters, 68.7) take the
  place of attention: there are no logits to add a position to.
- CPVT, Table 1 at 384, Tables 2 and 8 at other sizes than 224, and Table 4's ReaL labels and
  throughput are tests of the models above.
- ContextPool, Table 6: ViT-L, DeiT and Swin-S, its baselines. Table S1: deformable pooling in
  ResNet-44; Dai et al. pool regions, and how that halves a map is not said. DCN and N-Jet there are
  others' models. Tables 1, 4 and 5 are of language.
"""
HEADER = ('| config | parameters | reference | difference | MACs (M) | reference | difference '
          '| top-1 in the paper | source |\n|---|---:|---:|---:|---:|---:|---:|---:|---|\n')


def read_metafile(path: Path) -> dict[str, Any]:
    """A metafile.

    Raises:
        ValueError: if its models are not the configs beside it, in the order of their names.
    """
    meta: dict[str, Any] = yaml.safe_load(path.read_text())
    names = [model['Config'] for model in meta['Models']]
    there = [str(file.relative_to(ROOT)) for file in sorted(path.parent.glob('*.py'))]
    if sorted(names) != there:
        odd = sorted(set(names) ^ set(there))
        raise ValueError(f'{path}: Models must be the configs beside it; these are in one of '
                         f'the two: {odd or "none, but one is listed twice"}')
    return meta


def parse_count(said: int | str) -> tuple[int, int]:
    """A number as a paper gives it, and its last digit's unit: '22.05 M' is (22050000, 10000)."""
    if isinstance(said, int):
        return said, 1
    number, _, million = said.partition(' ')
    if million != 'M':
        raise ValueError(f"Parameters: {said!r} must be a whole number, or like '22.05 M'")
    unit = 10 ** (6 - len(number.partition('.')[2]))
    return round(float(number) * 1e6), unit


def parameter_cells(counted: int, said: int | str | None) -> list[str]:
    """Parameters of the model, those of the reference, and the difference."""
    if said is None:
        return [f'{counted:,}', '-', '-']
    reference, unit = parse_count(said)
    off = 0 if counted // unit * unit == reference else round(counted / unit) * unit - reference
    return [f'{counted:,}', f'{said:,}' if unit == 1 else str(said),
            f'{off:+,}' if off else '=']


def mac_cells(counted: int, said: int | None) -> list[str]:
    """The same of multiply-accumulates, in millions."""
    if said is None:
        return [f'{counted // 10 ** 6:,}', '-', '-']
    off = f'{100 * (counted / said - 1):+.1f} %' if counted != said else '='
    return [f'{counted // 10 ** 6:,}', f'{said // 10 ** 6:,}', off]


def table_row(model: dict[str, Any]) -> str:
    """One line of the table."""
    reference, counted = model['Reference'], model['Metadata']
    cells = [f"[{model['Name']}](../{model['Config']})",
             *parameter_cells(counted['Parameters'], reference.get('Parameters')),
             *mac_cells(counted['FLOPs'], reference.get('FLOPs')),
             str(reference.get('Top 1 Accuracy', '-')), reference['Source']]
    return '| ' + ' | '.join(cells) + ' |\n'


def model_page(metafiles: list[Path]) -> str:
    """The text of docs/models.md."""
    page = INTRO
    for path in metafiles:
        meta = read_metafile(path)
        page += f"\n## {meta['Collections'][0]['Name']}\n\n{HEADER}"
        page += ''.join(table_row(model) for model in meta['Models'])
    return page + MISSING


def model_index(metafiles: list[Path]) -> str:
    """The text of model-index.yml, from which mim learns of the metafiles."""
    return 'Import:\n' + ''.join(f'  - {path.relative_to(ROOT)}\n' for path in metafiles)


def main(argv: list[str] | None = None) -> None:
    parser = Parser(__doc__)
    parser.add_argument('--check', action='store_true', help='change nothing; fail if a file is '
                        'not what the metafiles give')
    args = parser.parse_args(argv)
    with reported(args):
        metafiles = sorted((ROOT / 'configs').glob('*/*/metafile.yml'))
        texts = {ROOT / 'docs' / 'models.md': model_page(
                     [path for path in metafiles if path.parts[-3] == 'classification']),
                 ROOT / 'model-index.yml': model_index(metafiles)}
    for path, text in texts.items():
        if not args.check:
            path.write_text(text)
            print(f'wrote {path}')
        elif not path.is_file() or path.read_text() != text:
            sys.exit(f'error: {path} is out of date; run python tools/model_table.py')


if __name__ == '__main__':
    main()
