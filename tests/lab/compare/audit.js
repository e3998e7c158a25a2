// What is wrong with a page, as JSON: {} where nothing is. Contrast as WCAG 2.2 counts it.
(() => {
  const wrong = {};
  const tell = (what, element) => (wrong[what] ??= []).push(
    `${element.tagName}.${element.className.baseVal ?? element.className}: ${element.textContent.trim().slice(0, 40)}`);
  const all = (selector) => [...document.querySelectorAll(selector)];

  // Order and names.
  let level = 0;
  for (const head of all('h1, h2, h3, h4')) {
    const next = Number(head.tagName[1]);
    if (next > level + 1) tell('a head is skipped', head);
    level = next;
  }
  if (all('h1').length !== 1 || all('main').length !== 1 || all('header').length !== 1
      || all('nav[aria-label]').length !== 1 || all('footer').length !== 1) {
    tell('landmarks', document.body);
  }
  const ids = all('[id]').map((element) => element.id);
  if (new Set(ids).size !== ids.length) tell('an id is there twice', document.body);
  for (const element of all('[aria-labelledby]')) {
    for (const id of element.getAttribute('aria-labelledby').split(' ')) {
      if (!document.getElementById(id)?.textContent.trim()) tell('no label', element);
    }
  }
  for (const link of all('a[href^="#"]')) {
    if (!document.getElementById(link.hash.slice(1))) tell('a link to nowhere', link);
  }
  for (const svg of all('svg')) {
    const named = svg.getAttribute('role') === 'img'
      && svg.querySelector(':scope > title')?.textContent && svg.querySelector(':scope > desc')?.textContent;
    if (!named && svg.getAttribute('aria-hidden') !== 'true') tell('a chart without text', svg);
  }
  for (const figure of all('#sizes figure.chart, #curves figure.chart')) {
    if (!figure.querySelector('details table')) tell('a chart without its numbers', figure);
  }
  for (const image of all('img')) if (!image.alt) tell('a picture without text', image);
  for (const image of all('img')) if (!image.naturalWidth) tell('a picture that is not one', image);
  for (const head of all('th')) if (!head.scope) tell('a head without scope', head);
  for (const table of all('table')) {
    if (!table.caption && !table.parentElement.ariaLabel) tell('a table without a name', table);
  }
  for (const text of all('.chart svg text')) {
    const box = text.getBoundingClientRect();
    const chart = text.closest('svg').getBoundingClientRect();
    if (box.left < chart.left - 1 || box.right > chart.right + 1
        || box.bottom > chart.bottom + 1) tell('words that reach out of their chart', text);
  }
  for (const chart of all('.chart svg')) {
    const boxes = [...chart.querySelectorAll('.tick')].filter((text) => text.textContent)
      .map((text) => [text, text.getBoundingClientRect()]);
    for (const [text, a] of boxes) for (const [other, b] of boxes) {
      if (text !== other && a.left < b.right && b.left < a.right && a.top < b.bottom && b.top < a.bottom) {
        tell('ticks that run into each other', text);
      }
    }
  }
  for (const box of all('.scroll')) {
    const name = box.ariaLabel
      || document.getElementById(box.getAttribute('aria-labelledby'))?.textContent.trim();
    if (box.tabIndex !== 0 || !name) tell('no focus to scroll by', box);
  }
  for (const button of all('button')) if (!button.textContent.trim()) tell('no name', button);
  if (/\b(undefined|nan|None|null|inf)\b/.test(document.querySelector('main').innerText
      .replaceAll(/loss is (nan|inf)|^Not.*$/gm, ''))) tell('a value that is none', document.querySelector('main'));

  // Contrast of all text that is seen.
  const canvas = document.createElement('canvas').getContext('2d', { willReadFrequently: true });
  const parsed = new Map();
  const rgba = (color) => {
    if (!parsed.has(color)) {
      canvas.clearRect(0, 0, 1, 1);
      canvas.fillStyle = color;
      canvas.fillRect(0, 0, 1, 1);
      parsed.set(color, [...canvas.getImageData(0, 0, 1, 1).data]);
    }
    return parsed.get(color);
  };
  const over = (top, below) => [0, 1, 2].map(
    (n) => (top[n] * top[3] + below[n] * (255 - top[3])) / 255).concat(255);
  const behind = (element) => {
    const layers = [];
    for (let at = element; at; at = at.parentElement) layers.push(rgba(getComputedStyle(at).backgroundColor));
    return layers.reduceRight((below, top) => over(top, below), [255, 255, 255, 255]);
  };
  const light = (color) => {
    const [r, g, b] = color.slice(0, 3).map((v) => v / 255).map(
      (v) => (v <= .04045 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4));
    return .2126 * r + .7152 * g + .0722 * b + .05;
  };
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const element = walker.currentNode.parentElement;
    if (!walker.currentNode.data.trim() || element.closest('script, title, desc, .unseen')) continue;
    const style = getComputedStyle(element);
    const ground = behind(element);
    const ink = over(rgba(element.closest('svg') ? style.fill : style.color), ground);
    const [a, b] = [light(ink), light(ground)];
    if (Math.max(a / b, b / a) < 4.5) tell(`contrast ${Math.max(a / b, b / a).toFixed(2)}`, element);
  }
  return JSON.stringify(wrong);
})()
