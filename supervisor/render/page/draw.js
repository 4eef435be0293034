// Drawing one run as SVG.
const TITLES = { trainer: 'trainer', worker: 'loader workers', 'pool worker': 'pool workers', beside: 'other processes', rsswarden: 'rsswarden itself' };
const roleClass = (r) => (r === 'shm manager' ? 'shm' : r);

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

// stackOf is the bands that the chosen limit counts, and stackSum their sum at each point.
const stackOf = (c) => (c.limit >= 0 ? c.run.limits[c.limit].stack : c.run.stack);

function stackSum(l, stack) {
  const sum = new Float32Array(l.n);
  for (const i of stack) for (let k = 0; k < l.n; k++) sum[k] += l.bands[i].anon[k] + l.bands[i].file[k] + l.bands[i].shmem[k];
  return sum;
}

// topOf is where the axis ends: above all that is drawn, and above the limit
// unless that is so far off that nothing else would be seen.
function topOf(c) {
  let most = 1 << 20, lim = 0;
  for (const raw of c.run.levels) {
    const l = level(raw), x = l.limits[c.limit];
    for (const v of stackSum(l, stackOf(c))) if (v > most) most = v;
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
  const left = narrow ? 52 : 68, right = width - 10, top = 18;
  const lanes = (run.marks.length ? 26 : 0) + (run.trims.cells.length ? 16 : 0), bottom = height - 24 - lanes;
  Object.assign(c, { left, right, top, bottom, marksAt: bottom + 34, trimsAt: bottom + (run.marks.length ? 57 : 34) });
  svg.replaceChildren();
  svg.setAttribute('viewBox', `0 0 ${width} ${height}`);
  svg.setAttribute('height', height);
  const [most, limitShown] = c.range || (c.range = topOf(c));
  const x = c.x = (t) => left + (t - view.a) / (view.b - view.a) * (right - left);
  const y = c.y = (v) => bottom - v / most * (bottom - top);
  for (const v of sizeTicks(most, height < 250 ? 4 : 6)) {
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
  el('svg:rect', { x: left, y: top, width: Math.max(0, right - left), height: bottom + 1 - top }, defs);
  const g = el('svg:g', { 'clip-path': `url(#${id})` }, svg);
  el('svg:path', { class: 'tick', d: `M${left} ${bottom + 0.5}H${right}` }, svg);
  drawMarks(c, svg, data);
  drawTrims(c, svg);
  const l = c.level = levelFor(run, view.a);
  if (!l || !l.n) {
    el('svg:text', { class: 'axis', x: (left + right) / 2, y: (top + bottom) / 2, 'font-size': 13, 'text-anchor': 'middle' }, svg, 'no samples');
    return;
  }
  const pieces = columns(l, c.limit, view.a, view.b, right - left);
  const below = new Float32Array(l.n);
  for (const i of stackOf(c)) {
    const b = l.bands[i], base = below.slice();
    for (const piece of pieces) for (const p of piece) below[p.k] += b.anon[p.k] + b.file[p.k] + b.shmem[p.k];
    el('svg:path', { class: 'band ' + roleClass(run.roles[i]), d: areaPath(pieces, (p) => base[p.k], (p) => below[p.k], x, y) }, g);
  }
  if (c.limit >= 0) drawLimit(c, g, pieces, limitShown, data.rungs);
  const own = l.bands[run.roles.indexOf('rsswarden')];
  if (c.own && own) el('svg:path', { class: 'own', d: linePath(pieces, (p) => own.anon[p.k] + own.file[p.k] + own.shmem[p.k], x, y) }, g);
  if (c.proc) drawProc(c, g);
}

function drawLimit(c, g, pieces, shown, rungs) {
  const { x, y } = c, any = (key) => pieces.some((piece) => piece.some((p) => p[key] > 0));
  const line = (key) => el('svg:path', { class: key, d: linePath(pieces, (p) => p[key], x, y) }, g);
  const known = pieces.map((piece) => piece.filter((p) => p.used >= 0)).filter((piece) => piece.length);
  const part = (share) => linePath(pieces, (p) => (p.size > 0 ? p.size * share : -1), x, y);
  let size0 = 0;
  for (const piece of pieces) for (const p of piece) if (p.size > 0) size0 = p.size;
  if (size0 && shown) {
    el('svg:path', { class: 'beyond', d: areaPath(known, (p) => p.size, () => c.range[0], x, y) }, g);
    for (const share of rungs) el('svg:path', { class: 'rung', d: part(share) }, g);
  }
  el('svg:path', { class: 'span', d: areaPath(known, (p) => p.low, (p) => p.used, x, y) }, g);
  if (known.some((piece) => piece.some((p) => p.most > p.used))) el('svg:path', { class: 'range', d: areaPath(known, (p) => p.used, (p) => p.most, x, y) }, g);
  if (any('charged')) line('charged');
  if (any('working')) line('working');
  line('used');
  if (!size0) return;
  let at = c.top - 6, text = 'limit ' + limitSize(size0) + (shown ? '' : ', above this chart ↑');
  if (shown) {
    el('svg:path', { class: 'limit', d: part(1) }, g);
    at = y(size0) - 5;
  }
  if (c.width > 560) text = c.run.limits[c.limit].title + ' · ' + text;
  el('svg:text', { class: 'limittext', x: c.right, y: Math.max(11, at), 'font-size': 11, 'font-weight': 600, 'text-anchor': 'end' }, c.svg, text);
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

function laneTitle(c, name, at) {
  el('svg:text', { class: 'axis', x: c.left - 8, y: at + 3, 'font-size': 10, 'text-anchor': 'end' }, c.svg, name);
}

// drawMarks fills the lane of what happened: marks that would cover each other become one
// with their number.
function drawMarks(c, g, data) {
  if (!c.run.marks.length) return;
  laneTitle(c, 'events', c.marksAt);
  const groups = [];
  for (const m of c.run.marks) {
    const at = c.x(m.t);
    if (at < c.left - 0.5 || at > c.right + 0.5) continue;
    const last = groups[groups.length - 1];
    if (last && at - last.from < 20) {
      last.n++;
      if (m.weight > last.m.weight) { last.m = m; last.at = at; }
    } else groups.push({ at, from: at, m, n: 1 });
  }
  for (const { at, m, n } of groups) {
    const px = Math.round(Math.min(Math.max(at, c.left), c.right)), hollow = m.hollow ? 'hollow ' : '';
    const k = el('svg:g', { class: 'mark ' + hollow + m.kind, transform: `translate(${px} ${c.marksAt})` }, g);
    el('svg:path', { d: data.glyphs[m.glyph] }, k);
    if (n > 1) el('svg:text', { class: 'axis', y: 14, 'font-size': 9, 'text-anchor': 'middle', stroke: 'none' }, k, n);
  }
}

// eachTrim calls back for each cell of workers' own trims from a to b.
function eachTrim(run, a, b, each) {
  const { step, cells } = run.trims;
  for (let i = 0; i < cells.length; i += 3) if (cells[i] + step >= a && cells[i] <= b) each(cells[i], cells[i + 1], cells[i + 2]);
}

// drawTrims fills the strip of workers' own trims: the darker, the more in a pixel.
function drawTrims(c, g) {
  if (!c.run.trims.cells.length) return;
  laneTitle(c, 'trims', c.trimsAt);
  const counts = new Map(), wide = Math.max(2, Math.ceil(c.x(c.run.trims.step) - c.x(0)));
  let most = 1;
  eachTrim(c.run, c.view.a, c.view.b, (t, n) => {
    const at = Math.floor(Math.max(c.x(t), c.left) / wide) * wide, sum = (counts.get(at) || 0) + n;
    counts.set(at, sum);
    most = Math.max(most, sum);
  });
  const shades = ['', '', '', ''];
  for (const [at, n] of counts) shades[Math.ceil(n / most * 4) - 1] += `M${at} ${c.trimsAt - 5}v9h${Math.min(wide, c.right - at)}v-9z`;
  shades.forEach((d, i) => { if (d) el('svg:path', { class: 'strip-trim', 'fill-opacity': (i + 1) / 4, d }, g); });
}
