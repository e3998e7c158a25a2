'use strict';
(() => {
  const root = document.documentElement;
  const all = (selector, within = document) => [...within.querySelectorAll(selector)];

  // Theme: the reader's system says which, until the button does.
  const theme = document.getElementById('theme');
  const system = matchMedia('(prefers-color-scheme: dark)');
  const dark = () => root.dataset.theme ? root.dataset.theme === 'dark' : system.matches;
  const tell = () => theme.setAttribute('aria-pressed', String(dark()));
  theme.hidden = false;
  theme.addEventListener('click', () => {
    root.dataset.theme = dark() ? 'light' : 'dark';
    tell();
  });
  system.addEventListener('change', tell);
  tell();

  // What the text of an element becomes: a button with the same content.
  const button = (element) => {
    const made = document.createElement('button');
    made.type = 'button';
    made.append(...element.childNodes);
    element.append(made);
    return made;
  };

  // Tables: numbers begin with the greatest, words with a; what is not known stays last.
  const sort = (head) => {
    const body = head.closest('table').tBodies[0];
    const now = head.getAttribute('aria-sort');
    const first = head.classList.contains('number') ? 'descending' : 'ascending';
    const order = now === 'none' ? first : now === 'ascending' ? 'descending' : 'ascending';
    for (const other of head.parentNode.cells) other.setAttribute('aria-sort', 'none');
    head.setAttribute('aria-sort', order);
    const key = (row) => row.cells[head.cellIndex].dataset.sort;
    const compare = (a, b) => isNaN(a) || isNaN(b) ? a.localeCompare(b) : a - b;
    const rows = [...body.rows].sort((one, other) => {
      const [a, b] = [key(one), key(other)];
      if (a === undefined || b === undefined) return (a === undefined) - (b === undefined);
      return order === 'ascending' ? compare(a, b) : compare(b, a);
    });
    body.append(...rows);
  };
  for (const head of all('table.sortable thead th')) {
    head.setAttribute('aria-sort', 'none');
    button(head).addEventListener('click', () => sort(head));
  }

  // Legends: chosen encodings stand out in every chart, and in every legend alike.
  const chosen = new Set(all('.legend li[data-first]').map((item) => item.dataset.style));
  for (const hint of all('.hint')) hint.hidden = false;
  const draw = () => {
    for (const mark of all('svg [data-style]')) {
      mark.classList.toggle('faded', chosen.size > 0 && !chosen.has(mark.dataset.style));
    }
    for (const item of all('.legend li')) {
      item.firstChild.setAttribute('aria-pressed', String(chosen.has(item.dataset.style)));
    }
  };
  for (const item of all('.legend li')) {
    button(item).addEventListener('click', () => {
      const style = item.dataset.style;
      if (!chosen.delete(style)) chosen.add(style);
      draw();
    });
  }
  draw();

  // Pictures and figures: chosen ones take a row of their own.
  for (const picture of all('.pictures img, .figures img')) {
    const figure = picture.closest('figure');
    const made = document.createElement('button');
    made.type = 'button';
    made.className = 'enlarge';
    picture.replaceWith(made);
    const name = document.createElement('span');
    name.className = 'unseen';
    name.textContent = `Enlarge: ${picture.alt}`;
    made.append(picture, name);
    const draw = (large) => {
      figure.classList.toggle('large', large);
      made.setAttribute('aria-expanded', String(large));
    };
    made.addEventListener('click', () => draw(!figure.classList.contains('large')));
    draw(false);
  }

  // Paper opens nothing: what belongs on it is opened before.
  let opened = [];
  addEventListener('beforeprint', () => {
    opened = all('details.printed:not([open])');
    for (const details of opened) details.open = true;
  });
  addEventListener('afterprint', () => {
    for (const details of opened) details.open = false;
  });
})();
