// A table that does not fit gets small type. On a narrow window it becomes one card for each row: its
// first cell is the heading, and every other cell has the name of its column. On a wide one names in
// it may break. Without scripts such a table scrolls.
const narrow = matchMedia('(max-width: 46em)');

function layOut() {
  for (const table of document.querySelectorAll('.table-wrapper > table')) {
    const names = [...table.querySelectorAll('thead th')].map(cell => cell.textContent.trim());
    let heading = '';
    for (const row of table.querySelectorAll('tbody tr')) {
      [...row.cells].forEach((cell, i) => cell.dataset.column = names[i] ?? '');
      heading = row.cells[0].textContent.trim() || heading;  // empty: as in the row above
      row.cells[0].dataset.heading = row.cells[0].textContent.trim() ? '' : heading;
    }
    table.classList.remove('dense', 'cards', 'broken');
    for (const step of ['dense', narrow.matches ? 'cards' : 'broken']) {
      if (table.parentElement.scrollWidth > table.parentElement.clientWidth) {
        table.classList.remove('dense');
        table.classList.add(step);
      }
    }
  }
}

addEventListener('load', layOut);
narrow.addEventListener('change', layOut);
