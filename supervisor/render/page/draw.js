// Drawing one run as SVG.
const NS = 'http://www.w3.org/2000/svg';
const TITLES = { trainer: 'trainer', worker: 'loader workers', beside: 'counted beside the tree' };
const roleClass = (r) => (r === 'shm manager' ? 'shm' : r);

function el(name, attrs, parent, text) {
  const e = name.startsWith('svg:') ? document.createElementNS(NS, name.slice(4)) : document.createElement(name);
  for (const k in attrs) e.setAttribute(k, attrs[k]);
  if (text !== undefined) e.textContent = text;
  if (parent) parent.append(e);
  return e;
}

const round = (v) => Math.round(v * 10) / 10;

function linePath(pieces, value, x, y) {
  let d = '';
  for (const piece of pieces) {
    let pen = false;
    for (const p of piece) {
      const v = value(p);
      if (!(v >= 0)) { pen = false; continue; }
      const px = x(p.t);
      d += (pen ? 'L' : 'M') + round(px) + ' ' + round(y(v));
      if (!pen) d += 'h0.1';
      pen = true;
    }
  }
  return d;
}

function areaPath(pieces, low, high, x, y) {
  let d = '';
  for (const piece of pieces) {
    let there = '', back = '';
    for (const p of piece) {
      const px = round(x(p.t));
      there += (there ? 'L' : 'M') + px + ' ' + round(y(Math.max(0, high(p))));
      back = 'L' + px + ' ' + round(y(Math.max(0, low(p)))) + back;
    }
    if (piece.length === 1) {
      const px = round(x(piece[0].t)) + 1;
      there += 'L' + px + ' ' + round(y(high(piece[0]))) + 'L' + px + ' ' + round(y(low(piece[0])));
    }
    d += there + back + 'Z';
  }
  return d;
}

// topOf is where the axis ends: above all that is drawn, and above the limit
// unless that is so far off that nothing else would be seen.
function topOf(run, limit) {
  let most = 1 << 20, lim = 0;
  for (const raw of run.levels) {
    const l = level(raw);
    for (let k = 0; k < l.n; k++) if (l.sum[k] > most) most = l.sum[k];
    const x = l.limits[limit];
    for (let k = 0; x && k < l.n; k++) {
      if (x.most[k] > most) most = x.most[k];
      if (x.size[k] > lim) lim = x.size[k];
    }
  }
  return lim > 0 && lim <= 4 * most ? [Math.max(most, lim) * 1.08, true] : [most * 1.12, false];
}

// draw fills the svg of a chart for the view; c says where things are.
function draw(data, c, view, mode) {
  const { svg, run, width, height } = c, narrow = width < 560;
  const left = narrow ? 56 : 68, right = width - 10, top = 22, bottom = height - 24;
  Object.assign(c, { left, right, top, bottom });
  svg.replaceChildren();
  svg.setAttribute('viewBox', `0 0 ${width} ${height}`);
  svg.setAttribute('height', height);
  const [most, limitShown] = c.range || (c.range = topOf(run, c.limit));
  const x = c.x = (t) => left + (t - view.a) / (view.b - view.a) * (right - left);
  const y = c.y = (v) => bottom - v / most * (bottom - top);
  for (const v of sizeTicks(most, narrow || height < 200 ? 4 : 6)) {
    const at = Math.round(y(v)) + 0.5;
    el('svg:path', { class: 'grid', d: `M${left} ${at}H${right}` }, svg);
    el('svg:text', { class: 'axis', x: left - 8, y: at + 4, 'font-size': 11, 'text-anchor': 'end' }, svg, tickSize(v));
  }
  for (const [t, text] of timeTicks(data, view.a, view.b, Math.max(2, Math.floor((right - left) / 84)), mode)) {
    const at = Math.round(x(t)) + 0.5;
    el('svg:path', { class: 'tick', d: `M${at} ${bottom}v4` }, svg);
    const half = text.length * 3.2;
    if (at + half <= width && at - half >= 0) el('svg:text', { class: 'axis', x: at, y: bottom + 17, 'font-size': 11, 'text-anchor': 'middle' }, svg, text);
  }
  const id = 'clip' + c.index, defs = el('svg:clipPath', { id }, el('svg:defs', {}, svg));
  el('svg:rect', { x: left, y: 0, width: Math.max(0, right - left), height: bottom + 1 }, defs);
  const g = el('svg:g', { 'clip-path': `url(#${id})` }, svg);
  el('svg:path', { class: 'tick', d: `M${left} ${bottom + 0.5}H${right}` }, svg);
  const l = c.level = levelFor(run, view.a);
  if (!l || !l.n) {
    el('svg:text', { class: 'axis', x: (left + right) / 2, y: (top + bottom) / 2, 'font-size': 13, 'text-anchor': 'middle' }, svg, 'no sample was kept');
    return;
  }
  const pieces = columns(l, c.limit, view.a, view.b, right - left);
  const below = new Float32Array(l.n);
  l.bands.forEach((b, i) => {
    const base = below.slice();
    for (const piece of pieces) for (const p of piece) below[p.k] += b.anon[p.k] + b.file[p.k] + b.shmem[p.k];
    el('svg:path', { class: 'band ' + roleClass(run.roles[i]), d: areaPath(pieces, (p) => base[p.k], (p) => below[p.k], x, y) }, g);
  });
  if (c.limit >= 0) drawLimit(c, g, pieces, limitShown);
  if (c.proc) drawProc(c, g);
  drawMarks(c, svg);
}

function drawLimit(c, g, pieces, shown) {
  const { x, y } = c, any = (key) => pieces.some((piece) => piece.some((p) => p[key] > 0));
  const line = (key) => el('svg:path', { class: key, d: linePath(pieces, (p) => p[key], x, y) }, g);
  const held = (p) => p.used >= 0;
  const known = pieces.map((piece) => piece.filter(held)).filter((piece) => piece.length);
  el('svg:path', { class: 'span', d: areaPath(known, (p) => p.low, (p) => p.used, x, y) }, g);
  if (known.some((piece) => piece.some((p) => p.most > p.used))) el('svg:path', { class: 'range', d: areaPath(known, (p) => p.used, (p) => p.most, x, y) }, g);
  if (any('charged')) line('charged');
  if (any('working')) line('working');
  line('used');
  let size0 = 0;
  for (const piece of pieces) for (const p of piece) if (p.size > 0) size0 = p.size;
  if (!size0) return;
  const info = c.run.limits[c.limit];
  let at = c.top + 12, text = 'limit ' + size(size0) + ', above this chart ↑';
  if (shown) {
    el('svg:path', { class: 'limit', d: linePath(pieces, (p) => (p.size > 0 ? p.size : -1), x, y) }, g);
    at = y(size0) - 5;
    text = 'limit ' + size(size0);
  }
  if (c.width > 560) text += ' · ' + info.title;
  el('svg:text', { class: 'limittext', x: c.left + 6, y: Math.max(11, at), 'font-size': 11, 'font-weight': 600 }, g, text);
}

function drawProc(c, g) {
  const p = c.proc, vals = p.ready || (p.ready = column(p.rss, p.n || (p.n = countOf(p.rss)), KIB));
  const piece = [];
  for (let k = 0; k < vals.length; k++) piece.push({ t: p.from + (k + 0.5) * p.step, v: vals[k] });
  el('svg:path', { class: 'proc', d: linePath([piece], (q) => q.v, c.x, c.y) }, g);
}

function countOf(list) {
  let n = 0;
  for (let i = 1; i < list.length; i++) n += list[i] === null ? list[++i] : 1;
  return n;
}

const RANK = { limit: 1, decision: 2, finding: 3, fault: 4, signal: 5, rank: 6, exit: 7, oom: 8 };

function drawMarks(c, g) {
  const groups = [];
  for (const m of c.run.marks) {
    const at = c.x(m.t);
    if (at < c.left - 0.5 || at > c.right + 0.5) continue;
    const last = groups[groups.length - 1];
    if (last && at - last.at < 13) {
      last.n++;
      if (RANK[m.kind] > RANK[last.m.kind]) { last.m = m; last.at = at; }
    } else groups.push({ at, m, n: 1 });
  }
  for (const { at, m, n } of groups) {
    const px = Math.round(Math.min(Math.max(at, c.left), c.right)) + 0.5, k = el('svg:g', { class: 'mark ' + m.kind }, g);
    el('svg:path', { class: 'stem', d: `M${px} ${c.top}V${c.bottom}`, 'stroke-width': 1 }, k);
    el('svg:path', { d: `M${px} ${c.top}l5 -8h-10z`, stroke: 'none' }, k);
    if (n > 1) el('svg:text', { x: px, y: c.top - 11, 'font-size': 10, 'text-anchor': 'middle', stroke: 'none' }, k, n);
  }
}
