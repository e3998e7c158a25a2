"""What tests measured, read back from their work directories."""
from __future__ import annotations

import json
from pathlib import Path

#: Column and key of COCO's box metrics.
COCO_COLUMNS = (('AP', 'coco/bbox_mAP'), ('AP50', 'coco/bbox_mAP_50'), ('AP75', 'coco/bbox_mAP_75'))


def latest_metrics(work_dir: str | Path) -> dict[str, float]:
    """Metrics of the newest test in a work directory.

    Raises:
        FileNotFoundError: no test has left its metrics there.
    """
    # mmengine names them <time>/<time>.json; the log beside them is <time>.log.
    files = sorted(path for path in Path(work_dir).glob('*/*.json')
                   if path.stem == path.parent.name)
    if not files:
        raise FileNotFoundError(f'{work_dir} holds no metrics of a test (<time>/<time>.json)')
    metrics: dict[str, float] = json.loads(files[-1].read_text())
    return metrics


def coco_table(work_dirs: dict[str, str | Path]) -> str:
    """A table of COCO AP, AP50 and AP75.

    Args:
        work_dirs: name of each row and the work directory of its test.

    Raises:
        FileNotFoundError: a test has not run.
        ValueError: a test measured something else.
    """
    rows = [('', *(name for name, _ in COCO_COLUMNS))]
    for name, work_dir in work_dirs.items():
        metrics = latest_metrics(work_dir)
        missing = [key for _, key in COCO_COLUMNS if key not in metrics]
        if missing:
            raise ValueError(f'the test in {work_dir} has no {", ".join(missing)}; '
                             f'it has {", ".join(metrics) or "nothing"}')
        rows.append((name, *(f'{metrics[key]:.3f}' for _, key in COCO_COLUMNS)))
    width = max(len(row[0]) for row in rows)
    return '\n'.join('  '.join((row[0].ljust(width), *(cell.rjust(6) for cell in row[1:])))
                     for row in rows)
