// On a narrow window a table that does not fit becomes one card for each row: its first cell is the
// heading, and every other cell has the name of its column. Without scripts such a table scrolls.
const narrow = matchMedia('(max-width: 46em)');

function layOut() {
  for (const table of document.querySelectorAll('.table-wrapper > table')) {
    const names = [...table.querySelectorAll('thead th')].map(cell => cell.textContent.trim());
    for (const row of table.querySelectorAll('tbody tr')) {
      [...row.cells].forEach((cell, i) => cell.dataset.column = names[i] ?? '');
    }
    table.classList.remove('dense', 'cards');
    for (const step of ['dense', 'cards']) {
      if (narrow.matches && table.offsetWidth > table.parentElement.clientWidth) {
        table.classList.remove('dense');
        table.classList.add(step);
      }
    }
  }
}

addEventListener('load', layOut);
narrow.addEventListener('change', layOut);
