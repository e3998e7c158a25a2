"""What README, learn, choose and the cards say to take is computed from the tables they name."""
import csv
import re
from pathlib import Path

import pytest
from helpers.page_blocks import ROOT
from helpers.scripts import load_tool

from mmposenc.class_index import CLASSES
from mmposenc.encodings import ENCODINGS, CombinedRPE

NUMBER = re.compile(r'(?<![\w.])\d+\.\d+(?!\.?\d)')


def rows(name: str) -> list[list[str]]:
    with (ROOT / 'docs' / name).open() as file:
        return list(csv.reader(file))


def column(name: str, number: int | str) -> dict[str, float]:
    """A column of means by the first cell of its row."""
    header, *found = rows(name)
    at = header.index(number) if isinstance(number, str) else number
    return {row[0]: float(NUMBER.search(row[at])[0]) for row in found if NUMBER.search(row[at])}


@pytest.mark.parametrize('page', sorted((ROOT / 'docs').glob('*.md')), ids=lambda page: page.stem)
def test_tables_in_pages_are_those_of_their_files(page: Path) -> None:
    assert load_tool('page_tables').written(page) == page.read_text(), 'python tools/page_tables.py'


@pytest.mark.parametrize('page', ['README.md', 'docs/learn.md', 'docs/choose.md'])
def test_numbers_stand_in_tables_that_the_page_names(page: str) -> None:
    """Of those with decimals, outside of code."""
    text = (ROOT / page).read_text()
    files = set(re.findall(r'((?:studies|tables)/[\w-]+\.csv)', text))
    known = {number for name in files for row in rows(name) for cell in row
             for number in NUMBER.findall(cell)}
    prose = re.sub(r'(?ms)^```.*?^```|^    .*?$|`[^`]*`|\]\([^)]*\)'
                   r'|[\d.]+ million|(Python|to|torch|Apache-) ?[\d.]+', '', text)
    assert set(NUMBER.findall(prose)) <= known


LONG, LARGER = 'studies/digits-long.csv', 'tables/digits-larger.csv'


def test_rules_of_thumb() -> None:
    twice, none = column(LONG, '2x'), column(LONG, '2x')['none']
    shares = ['gta', 'rotary-shares', 'comrope']  # learn: they keep most, shares alone do not
    assert min(twice[name] for name in shares) > max(
        value for name, value in twice.items() if name not in shares)
    assert max(twice[name] for name in ('factorized', 'fire')) < twice['learned']
    assert max(twice['sincos'], twice['rotary']) < none  # choose: to be avoided
    header, *found = rows(LONG)  # choose, and its card: PEG for random weights
    best = {row[0]: row[-1].split() for row in found}
    assert {'0.75x', '1x'} <= set(best['peg']) and '2x' in best['gta']
    scene, trained = column(LARGER, 6), column(LARGER, 1)  # scenes twice as large
    assert scene.pop('PEG') > max(scene.values())
    assert all(value < 0.5 * trained[name] for name, value in column(LARGER, 6).items())


def test_pages_count_what_there_is() -> None:
    tasks = [row[1].partition(',')[0] for row in rows('studies/answered.csv')[1:]]
    pretrained = {data: sum(data in task for task in tasks)
                  for data in ('on trees', 'on blood cells', 'on CamVid')}
    digits = sum(task.startswith(('digits', 'grid8')) for task in tasks)
    masks, boxes, more = tasks.count('camvid'), tasks.count('bccd'), sum(pretrained.values())
    assert len(tasks) == digits + masks + boxes + more
    page = ' '.join((ROOT / 'docs' / 'evidence.md').read_text().split())
    asked = len(rows('studies/questions.csv')) - 1
    for said in (f'The {len(tasks)} rows (of {asked} questions)', f'{digits} of digits',
                 f'{masks} of segmentation (CamVid) and {boxes} of detection (BCCD)',
                 f'ViT-S has {more}: RT-DETR on trees {pretrained["on trees"]}',
                 f'RetinaNet on blood cells {pretrained["on blood cells"]}',
                 f'on CamVid {pretrained["on CamVid"]},'):
        assert said in page, said
    named = sum('.upstream.' in module for module in CLASSES['model'].values())
    kinds = len(set(ENCODINGS.values()) - {CombinedRPE})
    readme, table = ((ROOT / name).read_text() for name in ('README.md', 'docs/your-config.md'))
    for said in (f'[{named} of their backbones]', f'{kinds} position encodings'):
        assert readme.count(said), f'README.md must say {said!r}'
    shown = ''.join(re.findall(r'(?m)^\|mm[\w, ]+\|([^|]*)', table))
    assert len(re.findall(r'`\w+`', shown)) == named


def cost_cards() -> list[tuple[str, str]]:
    """Names of encodings and the cost that relative.md and rotary.md have for them."""
    found = []
    for page in ('relative', 'rotary'):
        text = (ROOT / 'docs' / f'{page}.md').read_text()
        found += re.findall(r'(?ms)^## ([\w, ]+?)$(?:(?!^## ).)*?^\|cost\|(.*?)\|$', text)
        found += re.findall(r'(?m)^\|(\[?`\w+`.*?)\|.*\|([^|]*)\|$',
                            text.partition('\n## Others')[2].partition('\n## ')[0])
    assert len(found) > 15
    return [each for each in found if not {'PaPE', '`CombinedRPE`'} & {each[0]}]


@pytest.mark.parametrize('names, cost', cost_cards())
def test_costs_of_cards_are_the_measured_ones(names: str, cost: str) -> None:
    """Low below 1.5, medium below 2.5, high above: of all rows of the card's classes."""
    classes = re.findall(r'\b[A-Z]\w+', re.sub(r'\(.*?\)', '', names))
    times = [float(each) for row in rows('tables/encoding-cost.csv')
             if row[0].split()[0] in classes for cell in (row[1], row[3])
             for each in re.findall(r'[\d.]+', cell.partition(' ')[0])]
    levels = ['low', 'medium', 'high']
    least, most = (levels[(value >= 1.5) + (value >= 2.5)] for value in (min(times), max(times)))
    assert re.match(f'{least if least == most else f"{least} to {most}"}\\b', cost)
