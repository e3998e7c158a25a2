"""The page of a study: what it holds, and how it behaves in a browser."""
import copy
import json
import math
from pathlib import Path

import pytest
from helpers.headless_browser import Browser, needs_browser
from helpers.made_up_studies import METRIC, drawn, encoding, run, study
from PIL import Image

from mmposenc.lab.compare.page import tables
from mmposenc.lab.compare.page.report import write_report
from mmposenc.lab.compare.statistics.summary import with_summary

HOSTILE = '<script>window.hacked = 1</script>'
SVG = ('<svg xmlns="http://www.w3.org/2000/svg" width="40" height="30"><text y="20">a</text>'
       '<image href="https://example.com/a.png"/></svg>')


def full(folder):
    """Everything that a page can hold."""
    names = ('none', 'peg', HOSTILE)
    values = drawn({name: {factor: 80. + 5 * n - 9 * abs(factor - 1) for factor in (.5, 1.0, 2.0)}
                    for n, name in enumerate(names)})
    results = study(values, encodings=[encoding('none'), encoding('peg', 61_000, 'PEG'),
                                       encoding(HOSTILE, 62_000)])
    for each in results['runs']:
        each['tests'][1].update(by_class={'cat': 80. + each['seed'], HOSTILE: 70.},
                                by_size=dict(small=10., large=None))
    results['runs'].append(run('peg', 3, {}, status='diverged', note=f'loss is nan {HOSTILE}'))
    results['runs'].append(run('peg', 4, {}, status='failed', note='', log=['a', HOSTILE]))
    Image.new('RGB', (20, 10), 'red').save(folder / 'truth.png')
    (folder / 'figure.svg').write_text(SVG)
    results.update(
        pictures=[dict(id='a', title=HOSTILE, entries=[
            dict(encoding=None, file='truth.png', text='a dog'),
            dict(encoding='peg', file='gone.png', text='a cat')])],
        figures=[dict(encoding='peg', title='Kernels', file='figure.svg', text='Nine weights'),
                 dict(encoding='none', title='Outside', file='../secret.png', text='x')])
    return results


def one_of_each(folder):
    """One encoding, one seed, one size."""
    return study({'peg': {1.0: [80.0]}})


def all_diverged(folder):
    return study({'none': {1.0: [1.]}, 'peg': {1.0: [1.]}}, runs=[
        run(name, seed, {}, status='diverged', note='loss is inf',
            curve=[dict(epoch=1, loss=math.inf, metric=None)])
        for name in ('none', 'peg') for seed in (0, 1)])


def waiting(folder):
    """Nothing has run, and nothing is known of the costs."""
    bare = dict(name='none', label='none', changes={}, parameters=None, costs=[])
    return study({'none': {1.0: [1.]}}, encodings=[bare], runs=[
        run('none', 0, {}, status='waiting', curve=[], train_seconds=None,
            train_cpu_seconds=None, peak_bytes=None)], environment={}, length={}, command='')


def boxes(folder):
    """Detection without small objects."""
    metric = dict(METRIC, name='coco/bbox_mAP', label='AP of boxes', unit='')
    results = study(drawn({'none': {1.0: .3}, 'peg': {1.0: .35}}, std=.01, shared=.01),
                    metric=metric, task='detection')
    for each in results['runs']:
        each['tests'][0]['by_size'] = dict(medium=.2, large=.4)
    return results


def many(folder):
    """Twelve encodings, a hundred classes, five sizes."""
    values = drawn({f'an-encoding-with-a-long-name-{n}': {
        factor: 50. + n for factor in (.5, .75, 1.0, 1.5, 2.0)} for n in range(12)})
    results = study(values)
    for each in results['runs']:
        each['tests'][2]['by_class'] = {f'class number {n}': 50. + n / 3 for n in range(100)}
    return results


STUDIES = (full, one_of_each, all_diverged, waiting, boxes, many)


@pytest.fixture(scope='module')
def pages(tmp_path_factory):
    """Name of a study -> its report.html."""
    made = {}
    for build in STUDIES:
        folder = tmp_path_factory.mktemp(build.__name__)
        write_report(with_summary(build(folder)), folder)
        made[build.__name__] = folder / 'report.html'
    return made


@pytest.fixture(scope='module')
def browser(tmp_path_factory):
    tab = Browser(tmp_path_factory.mktemp('profile'))
    yield tab
    tab.close()


def test_what_was_not_tested_is_no_advice(tmp_path):
    results = with_summary(study(drawn({'none': {1.0: 80.}, 'peg': {1.0: 96.}}, std=.1)))
    before = copy.deepcopy(results)
    write_report(results, tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {'results.csv', 'report.html'}
    assert results == before and 'Take peg' in (tmp_path / 'report.html').read_text()
    write_report(with_summary(study({'none': {1.0: [80.]}, 'peg': {1.0: [96.]}})), tmp_path)
    assert 'Take peg' not in (tmp_path / 'report.html').read_text()


GOLDEN = Path(__file__).parent / 'golden'


def as_text(table):
    """A table with a line a row; what is marked has a star before it."""
    rows = [[f'{"*" * (cell.mark == "best")}{cell.text}' for cell in row] for row in table.rows]
    return '\n'.join([table.caption, *map(' | '.join, [table.columns, *rows]), ''])


def test_every_number_of_the_csv_and_of_the_tables(pages):
    """Made by ``write_report`` of ``full(folder)`` and by :func:`as_text`; whoever makes them anew
    looks at what changed."""
    assert pages['full'].with_name('results.csv').read_text() == (
        GOLDEN / 'results.csv').read_text()
    results = with_summary(full(pages['full'].parent))
    shown = [tables.overview_table(results),
             *(tables.differences_table(results, size) for size in (.5, 1, 2)),
             tables.parts_table(results, 'by_size', 'Object size'),
             tables.parts_table(results, 'by_class', 'Class'), tables.runs_table(results)]
    assert '\n'.join(map(as_text, shown)) == (GOLDEN / 'tables.txt').read_text()


def test_the_page_holds_everything_and_no_foreign_script(pages):
    """Nothing of the network; what is missing is said; the statistics' own numbers."""
    page = pages['full'].read_text()
    assert page.count('<script') == 1 and HOSTILE not in page
    assert 'src="http' not in page and 'href="http' not in page and '@import' not in page
    assert "default-src 'none'; img-src data:" in page
    assert 'data:image/svg+xml;base64' in page and 'alt="Truth: a dog"' in page
    assert "gone.png is not in the study" in page
    assert page.count('<circle class="mark"') == 9  # a dot for each finished run
    assert page.index('>PEG<title>') > page.index('&lt;script&gt;window.hack…<title>')  # sorted
    assert "../secret.png is not in the study" in page
    results = with_summary(full(pages['full'].parent))
    for rows, key in ((results['summary'], 'mean'), (results['differences'], 'mean')):
        assert all(f'data-sort="{row[key]}"' in page for row in rows)


AUDIT = Path(__file__).with_name('audit.js').read_text()
OPEN_ALL = 'for (const each of document.querySelectorAll("details")) each.open = true'


@needs_browser
@pytest.mark.parametrize('name', [build.__name__ for build in STUDIES])
def test_page_in_a_browser(pages, browser, name):
    """At two widths and in two themes: quiet, no wider than the window, readable, in order."""
    for width, dark in ((400, True), (1600, False)):
        browser.open(pages[name], width, dark=dark)
        assert browser.messages == []
        assert [url for url in browser.requests if not url.startswith('data:')] == [
            pages[name].as_uri()]
        browser.run(OPEN_ALL)
        assert browser.run('document.documentElement.scrollWidth') == width
        wrong = json.loads(browser.run(AUDIT))
        assert wrong == {}, wrong
        assert browser.run('window.hacked') is None


@needs_browser
def test_sorting_by_keyboard(pages, browser):
    browser.open(pages['full'])
    names = "[...document.querySelectorAll('#overview tbody th')].map(e => e.textContent)"
    state = "document.querySelectorAll('#overview thead th')[2].getAttribute('aria-sort')"
    assert browser.run(state) == 'none'
    browser.run("document.querySelectorAll('#overview thead button')[1].focus()")
    browser.press('Tab')
    browser.press('Enter')
    rows = [HOSTILE, 'PEG', 'no encoding']
    assert (browser.run(state), browser.run(names)) == ('descending', rows)
    browser.press('Space')
    assert (browser.run(state), browser.run(names)) == ('ascending', rows[::-1])
    # Words begin with a, the other column is sorted no more, and what is not known comes last.
    browser.run("document.querySelector('#overview thead button').click()")
    assert browser.run(state) == 'none'
    assert browser.run(names) == [HOSTILE, 'no encoding', 'PEG']
    browser.run("document.querySelectorAll('#all-runs thead button')[3].click()")
    ends = "[...document.querySelectorAll('#all-runs tbody tr')].map(r => r.cells[2].textContent)"
    assert browser.run(ends)[-2:] == ['diverged', 'failed']


@needs_browser
def test_theme_follows_the_reader_and_the_button(pages, browser):
    background = 'getComputedStyle(document.body).backgroundColor'
    pressed = "document.getElementById('theme').getAttribute('aria-pressed')"
    browser.open(pages['one_of_each'], dark=False)
    light = browser.run(background)
    browser.open(pages['one_of_each'], dark=True)
    dark = browser.run(background)
    assert light != dark and browser.run(pressed) == 'true'
    browser.run("document.getElementById('theme').focus()")
    browser.press('Space')
    assert browser.run(background) == light and browser.run(pressed) == 'false'
    assert json.loads(browser.run(AUDIT)) == {}


@needs_browser
def test_first_stop_of_the_keyboard_is_the_answer(pages, browser):
    browser.open(pages['full'])
    browser.press('Tab')
    assert browser.run('document.activeElement.className') == 'skip'
    browser.press('Enter')
    assert browser.run('document.activeElement.id') == 'answer'
    outline = "getComputedStyle(document.activeElement).outlineStyle"
    browser.press('Tab')
    assert browser.run(outline) != 'none'


@needs_browser
def test_legend_fades_what_is_not_chosen_in_every_chart(pages, browser):
    browser.open(pages['full'])
    browser.run("document.querySelector('.legend button').click()")
    faded = ("[...new Set([...document.querySelectorAll('svg .faded')]"
             ".map(e => e.dataset.style))].sort()")
    assert browser.run(faded) == ['1', '2']
    same = "[...document.querySelectorAll('.legend li:first-child button')].map(e => e.ariaPressed)"
    assert set(browser.run(same)) == {'true'}
    browser.run("document.querySelector('.legend button').click()")
    assert browser.run(faded) == []


@needs_browser
def test_pictures_open_large_by_keyboard(pages, browser):
    browser.open(pages['full'], 1600)
    width = "document.querySelector('#figures img').getBoundingClientRect().width"
    small = browser.run(width)
    browser.run("document.querySelector('#figures .enlarge').focus()")
    browser.press('Enter')
    assert browser.run(width) > 1.5 * small
    browser.press('Space')
    assert browser.run(width) == small


@needs_browser
def test_of_many_encodings_some_stand_out_at_first(pages, browser):
    browser.open(pages['many'])
    seen = "[...new Set([...document.querySelectorAll('svg [data-style]:not(.faded)')].map(e => e"
    # All sizes have one order: the base, and the last, which is recommended and best everywhere.
    assert browser.run(f"{seen}.dataset.style))].sort()") == ['0', '11']
    browser.open(pages['full'])
    assert browser.run("document.querySelectorAll('.faded').length") == 0


@needs_browser
def test_paper_shows_the_tables_of_every_size_and_is_light(pages, browser, tmp_path):
    browser.open(pages['full'], dark=True)
    browser.run("addEventListener('beforeprint', () => { window.printed = [...document"
                ".querySelectorAll('details.printed')].map(e => e.open) })")
    browser.pdf(tmp_path / 'page.pdf')
    assert (tmp_path / 'page.pdf').read_bytes().startswith(b'%PDF')
    assert browser.run('window.printed') == [True] * 2  # the tables of two sizes
    assert browser.run("document.querySelectorAll('details[open]').length") == 0
    browser.send('Emulation.setEmulatedMedia', media='print', features=[
        dict(name='prefers-color-scheme', value='dark')])
    assert browser.run('getComputedStyle(document.body).backgroundColor') == 'rgb(255, 255, 255)'
    # The width of A4 without its margins.
    browser.send('Emulation.setDeviceMetricsOverride', width=688, height=900, deviceScaleFactor=1,
                 mobile=False)
    browser.run(OPEN_ALL)
    assert browser.run('document.documentElement.scrollWidth') == 688
    wide = '''[...document.querySelectorAll('.scroll')].filter((box) => box.offsetParent
        && box.scrollWidth > box.clientWidth).map((box) => box.innerText.slice(0, 60))'''
    assert browser.run(wide) == []
