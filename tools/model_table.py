"""Write docs/tables/models.csv, the metafiles and model-index.yml from the tables of
configs/papers and from configs/models.yaml.

    python tools/model_table.py            # write them
    python tools/model_table.py --check    # change nothing; fail where one is out of date
"""
import copy
import re
import sys
from pathlib import Path
from typing import Any

import yaml

from mmposenc.catalog.papers import (
    Number,
    PaperTable,
    config_of_model,
    models_by_name,
    tables_by_id,
)
from mmposenc.lab.compare.page.report import csv_text
from mmposenc.terminal.messages import Parser, reporting_errors, suggestion_text

ROOT = Path(__file__).resolve().parents[1]
#: Columns that metafiles have, and what they call them.
NAMES = {'top1': 'Top 1 Accuracy', 'top1@224': 'Top 1 Accuracy',
         **{name: name for name in ('box AP', 'mask AP', 'mIoU', 'mIoU(ms+flip)')}}

#: Keys of files, of tables and of models, the required ones first; and the type of each value.
Keys = tuple[dict[str, type], dict[str, type]]
PAPER: Keys = ({'title': str, 'venue': str, 'tables': dict}, {'url': str, 'notes': str})
TABLE: Keys = ({'title': str, 'columns': list, 'rows': list},
               {'url': str, 'notes': str, 'decisions': dict})
MODEL: Keys = ({}, {'base': str, 'changes': dict, 'counted': dict})
COUNTED: Keys = ({'params': int}, {'macs': int, 'macs_with_means': int})
#: Numbers that YAML reads as text: 5.7M, 80.5 ± 0.1, 9x9.
WRITTEN = re.compile(r'\d+(\.\d+)?([MG]|x\d+| ± \d+(\.\d+)?)?')
UNITS = {'M': 10 ** 6, 'G': 10 ** 9}


def count(name: str) -> dict[str, int]:
    """Parameters of a model, and of a classifier the multiply-accumulates of one image, to a
    million: values of iRPE as in its release; ContextPool without its means, as in its paper, and
    also with them."""
    import torch

    from mmposenc.attention.building import parameter_counts
    from mmposenc.encodings import ContextPool
    from mmposenc.engine.config.config import load_config
    from mmposenc.engine.config.models import build_model
    cfg = load_config(str(config_of_model(name)))
    cfg.model.pop('teacher', None)
    # mmdet's ResNet reads numbers from tensors while it is built.
    on_cpu = 'ResNet' in cfg.model.get('backbone', {}).get('type', '')
    with torch.device('cpu' if on_cpu else 'meta'):
        model = build_model(cfg)
    counted = {'params': sum(parameter_counts(model).values())}
    dataset = cfg.test_dataloader.dataset
    size = next((step.crop_size for step in dataset.get('pipeline', ())
                 if step.type == 'CenterCrop'), 32 if dataset.type == 'CIFAR10' else None)
    if size is not None:
        pooled = any(isinstance(module, ContextPool) for module in model.modules())
        for name, means in (('macs', False), ('macs_with_means', True))[:1 + pooled]:
            macs = count_as_papers(model, (size, size), means)
            counted[name] = round(macs / 1e6) * 10 ** 6
    return counted


def count_as_papers(model: Any, hw_shape: tuple[int, int], pooled_means: bool) -> int:
    """Multiply-accumulates of one image as papers count them.

    iRPE on values is counted as in its release, which has a vector for each pair of tokens, Lq *
    Lk * embed_dims in each attention. This project sums attention weights by bucket first, which
    takes Lq * buckets * embed_dims.

    Args:
        model: the model; it is not changed.
        hw_shape: (H, W) of the image in pixels.
        pooled_means: count the means of a ContextPool with weights by token as a product,
            L * L * embed_dims.
    """
    import torch

    from mmposenc.backbones.complexity import multiply_accumulates
    from mmposenc.encodings import IRPE, ContextPool
    counted, more = copy.deepcopy(model).to('meta').eval().requires_grad_(False), [0]
    for module in counted.modules():
        if isinstance(module, IRPE) and 'v' in module.rpe_on:
            count_values_as_released(module, more)
        if isinstance(module, ContextPool) and not pooled_means and module.weights != 'nonlocal':
            module._pooled_by_locality = lambda x, *args: x
    image = torch.empty(1, 3, *hw_shape, device='meta')
    return multiply_accumulates(lambda: counted(image)) + more[0]


def count_values_as_released(encoding: Any, more: list[int]) -> None:
    """Make an iRPE add to ``more`` how many more multiply-accumulates its values take in the
    release."""
    from mmposenc.attention.terms import Term

    class AsReleased(Term):
        on_values = True

        def __init__(self, term: Any) -> None:
            self.term = term

        def output_of_weights(self, weights: Any) -> Any:
            out = self.term.output_of_weights(weights)
            dims = sum(table.shape[-1] for table in encoding.tables_of_side('v'))
            more[0] += weights.numel() * dims - out.numel() * self.term.buckets.num_all
            return out

    original = encoding.terms
    encoding.terms = lambda *grids: [AsReleased(each) if each.on_values else each
                                     for each in original(*grids)]


def as_number(said: Number) -> tuple[float, float] | None:
    """A count as a paper gives it, and the unit of its last digit: '22.05M' is 22,050,000 to
    10,000. None where there is none."""
    if isinstance(said, int):
        return said, 1
    if not isinstance(said, str) or said[-1] not in UNITS:
        return None
    digits, unit = said[:-1], UNITS[said[-1]]
    return float(digits) * unit, unit / 10 ** len(digits.partition('.')[2])


def check_files(configs: Path) -> None:
    """Checks configs/papers/*.yaml and configs/models.yaml.

    Raises:
        ValueError: names the file, table, row or key, and what is wrong with it.
    """
    for path in sorted(configs.glob('papers/*.yaml')):
        paper = checked(yaml.safe_load(path.read_text()), PAPER, path.name)
        for name, each in paper['tables'].items():
            check_table(f'{path.name}, {name}', checked(each, TABLE, f'{path.name}, {name}'))
    for entries in yaml.safe_load((configs / 'models.yaml').read_text()).values():
        for name, entry in entries.items():
            checked(entry, MODEL, f'models.yaml, {name}')
            if 'counted' in entry:
                checked(entry['counted'], COUNTED, f'models.yaml, {name}, counted')


def check_table(where: str, table: dict[str, Any]) -> None:
    for index, row in enumerate(table['rows'], 1):
        check_row(f'{where}, row {index}', table['columns'], row)
    for decided in table.get('decisions', {}):
        if decided not in {str(row[0]) for row in table['rows']}:
            raise ValueError(f'{where}, decisions: there is no row {decided!r}')


def check_row(where: str, columns: list[str], row: Any) -> None:
    if not isinstance(row, list) or len(row) < 2:
        raise ValueError(f'{where}: {row!r} must be a list: a name, a model, and a number for '
                         'each column')
    name, model, *numbers = row
    where = f'{where} ({name})'
    if len(numbers) != len(columns):
        raise ValueError(f'{where}: {len(numbers)} numbers for {len(columns)} columns')
    for column, number in zip(columns, numbers, strict=True):
        if isinstance(number, bool | list | dict) or (
                isinstance(number, str) and not WRITTEN.fullmatch(number)):
            raise ValueError(f'{where}: {column}={number!r} must be a number such as 72.4, 5.7M or '
                             '"80.5 ± 0.1", or null')
    if not isinstance(model, str):
        checked(model, ({'not here': str}, {}), where)


def checked(given: Any, keys: Keys, where: str) -> dict[str, Any]:
    """A mapping of a file, if it has the required keys, no other than the known, and their types.
    """
    needed, known = keys[0], {**keys[0], **keys[1]}
    if not isinstance(given, dict):
        raise ValueError(f'{where}: {given!r} must be a mapping with {", ".join(known)}')
    for key in needed:
        if key not in given:
            raise ValueError(f'{where}: there is no {key!r}')
    for key, value in given.items():
        if key not in known:
            raise ValueError(f'{where}: unknown key {key!r}{suggestion_text(str(key), known)}')
        if not isinstance(value, known[key]):
            raise ValueError(f'{where}: {key}={value!r} must be a {known[key].__name__}')
    return given


def row(table: PaperTable) -> tuple[str, str, str, str]:
    """The row of a table in docs/tables/models.csv."""
    source = f'[{table.source}]({table.url})' if table.url else table.source
    return f'`{table.id}`', source, table.title, str(table.here_text)


def references() -> dict[str, dict[str, Any]]:
    """What sources say of each model: of a number the first, releases before papers."""
    found: dict[str, dict[str, Any]] = {}
    for table in sorted(tables_by_id().values(), key=lambda table: table.source != 'releases'):
        release = table.source == 'releases'
        source = table.title if release else f'{table.source}, {table.id.partition("/")[2]}'
        for row in table.rows:
            said = {NAMES[column]: value for column, value in row.numbers.items()
                    if column in NAMES and value is not None}
            exact = as_number(row.numbers.get('params'))
            if release and exact is not None and exact[1] == 1:
                said['Parameters'] = exact[0]
            known = found.setdefault(row.model or '', {})
            if said and 'Source' not in known:
                known.update({'Source': source, **said})
    return found


def metafile(path: Path, said: dict[str, dict[str, Any]]) -> str:
    """The text of a metafile: its collection as it is, and the configs beside it."""
    old = yaml.safe_load(path.read_text())
    before = {model['Name']: model for model in old['Models']}
    new = []
    for file in sorted(path.parent.glob('*.py')):
        entry = before.get(file.stem, {
            'Name': file.stem, 'In Collection': old['Collections'][0]['Name'],
            'Config': str(file.relative_to(ROOT)), 'Metadata': {}})
        counted = models_by_name().get(file.stem, {}).get('counted')
        if counted is not None:
            entry['Metadata'].update(Parameters=counted['params'], FLOPs=counted['macs'])
        entry.pop('Reference', None)
        if said.get(file.stem):
            entry['Reference'] = said[file.stem]
        new.append(entry)
    return yaml.safe_dump({'Collections': old['Collections'], 'Models': new}, sort_keys=False)


def main(argv: list[str] | None = None) -> None:
    parser = Parser(__doc__)
    parser.add_argument('--check', action='store_true', help='change nothing; fail if a file is '
                        'not what the tables give')
    args = parser.parse_args(argv)
    with reporting_errors(args):
        check_files(ROOT / 'configs')
        metafiles = sorted((ROOT / 'configs').glob('*/*/metafile.yml'))
        said = references()
        texts = {path: metafile(path, said) for path in metafiles}
        texts[ROOT / 'docs' / 'tables' / 'models.csv'] = csv_text([
            ('table', 'source', 'what', 'rows here'), *map(row, tables_by_id().values())])
        texts[ROOT / 'model-index.yml'] = 'Import:\n' + ''.join(
            f'  - {path.relative_to(ROOT)}\n' for path in metafiles)
    stale = [path for path, text in texts.items()
             if not path.is_file() or path.read_text() != text]
    if args.check and stale:
        sys.exit(f'error: out of date: {", ".join(map(str, stale))}; run python '
                 'tools/model_table.py')
    for path in stale:
        path.write_text(texts[path])
        print(f'wrote {path}')


if __name__ == '__main__':
    main()
