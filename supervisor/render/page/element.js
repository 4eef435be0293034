// Elements of HTML and SVG.
const NS = 'http://www.w3.org/2000/svg';

function el(name, attrs, parent, text) {
  const e = name.startsWith('svg:') ? document.createElementNS(NS, name.slice(4)) : document.createElement(name);
  for (const k in attrs) e.setAttribute(k, attrs[k]);
  if (text !== undefined) e.textContent = text;
  if (parent) parent.append(e);
  return e;
}
