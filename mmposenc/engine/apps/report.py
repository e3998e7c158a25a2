"""Reads the metrics of tests from their work directories, and makes a table of them."""
from __future__ import annotations

import json
from pathlib import Path

#: Title, key and format of each column: first COCO's metrics of boxes, then those of segmentation
#: in percent.
COCO_COLUMNS = (('AP', 'coco/bbox_mAP', '.3f'), ('AP50', 'coco/bbox_mAP_50', '.3f'),
                ('AP75', 'coco/bbox_mAP_75', '.3f'))
SEG_COLUMNS = (('mIoU', 'mIoU', '.2f'), ('mAcc', 'mAcc', '.2f'), ('aAcc', 'aAcc', '.2f'))


def latest_metrics(work_dir: str | Path) -> dict[str, float]:
    """The metrics of the newest test in a work directory.

    Raises:
        FileNotFoundError: no test has left its metrics there.
        ValueError: the file is damaged.
    """
    # mmengine calls them <time>/<time>.json; the log beside them is <time>.log.
    files = sorted(path for path in Path(work_dir).glob('*/*.json')
                   if path.stem == path.parent.name)
    if not files:
        raise FileNotFoundError(f'{work_dir} holds no metrics of a test (<time>/<time>.json)')
    try:
        return {name: float(value) for name, value in json.loads(files[-1].read_text()).items()
                if isinstance(value, (int, float)) and not isinstance(value, bool)}
    except (ValueError, AttributeError) as error:
        raise ValueError(f'{files[-1]} does not hold the metrics of a test: {error}') from error


def metrics_table(work_dirs: dict[str, str | Path]) -> str:
    """A table of COCO AP, AP50 and AP75, or of mIoU, mean and whole accuracy.

    Args:
        work_dirs: name of each row and the work directory of its test; all of one task.

    Raises:
        FileNotFoundError: a test has not run.
        ValueError: a test measured something else.
    """
    tests = {name: latest_metrics(work_dir) for name, work_dir in work_dirs.items()}
    segmented = all('mIoU' in metrics for metrics in tests.values())
    columns = SEG_COLUMNS if segmented else COCO_COLUMNS
    rows = [('', *(name for name, _, _ in columns))]
    for name, metrics in tests.items():
        missing = [key for _, key, _ in columns if key not in metrics]
        if missing:
            raise ValueError(f'the test in {work_dirs[name]} has no {", ".join(missing)}; '
                             f'it has {", ".join(metrics) or "nothing"} (a detector that finds '
                             'nothing has none: lower model.test_cfg.score_thr)')
        rows.append((name, *(format(metrics[key], style) for _, key, style in columns)))
    width = max(len(row[0]) for row in rows)
    return '\n'.join('  '.join((row[0].ljust(width), *(cell.rjust(6) for cell in row[1:])))
                     for row in rows)
