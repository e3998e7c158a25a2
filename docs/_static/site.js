// A table that does not fit gets small type. If it still does not fit, names in it may break on a wide
// window; on a narrow one it scrolls, with its first column in place.
const narrow = matchMedia('(max-width: 46em)');

function layOut() {
  for (const table of document.querySelectorAll('.table-wrapper > table')) {
    table.classList.remove('dense', 'broken');
    for (const step of narrow.matches ? ['dense'] : ['dense', 'broken']) {
      if (table.parentElement.scrollWidth > table.parentElement.clientWidth) {
        table.classList.add(step);
      }
    }
  }
}

addEventListener('load', layOut);
narrow.addEventListener('change', layOut);
