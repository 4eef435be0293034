// The page: one set of charts with one view of time.
const app = {
  data: JSON.parse(document.getElementById('data').textContent),
  view: { a: 0, b: 1 }, cursor: null, charts: [], mode: 'clock', least: 2000, due: false,

  // show sets the view, within the run.
  show(a, b) {
    const all = app.data.length, wide = Math.min(all, Math.max(Math.min(app.least, all), b - a));
    const mid = (a + b) / 2, from = Math.min(all - wide, Math.max(0, mid - wide / 2));
    app.view = { a: from, b: from + wide };
    app.redraw();
  },
  zoom(by, at) {
    const { a, b } = app.view;
    app.show(at - (at - a) * by, at + (b - at) * by);
  },
  redraw() {
    if (app.due) return;
    app.due = true;
    requestAnimationFrame(() => {
      app.due = false;
      for (const c of app.charts) app.paint(c);
      app.strip();
    });
  },
  paint(c) {
    c.width = Math.max(200, c.box.clientWidth);
    c.height = c.width < 560 ? 220 : app.charts.length > 1 ? 230 : 320;
    c.view = app.view;
    draw(app.data, c, app.view, app.mode);
    c.svg.setAttribute('data-from', Math.round(app.view.a));
    c.svg.setAttribute('data-to', Math.round(app.view.b));
    c.brush = el('svg:rect', { class: 'brush', y: c.top, height: c.bottom - c.top, visibility: 'hidden' }, c.svg);
    c.cursor = el('svg:path', { class: 'cursor', visibility: 'hidden' }, c.svg);
    c.knob = el('svg:circle', { class: 'knob', r: 3.5, visibility: 'hidden' }, c.svg);
    app.cross(c);
  },
  brush(c, s, t) {
    if (!c.brush) return;
    const x = c.x(Math.min(s, t)), wide = Math.abs(c.x(t) - c.x(s));
    c.brush.setAttribute('visibility', wide ? 'visible' : 'hidden');
    c.brush.setAttribute('x', x);
    c.brush.setAttribute('width', wide);
    if (wide) app.point(c, t);
  },

  // point moves the cursor of all charts and opens the readout of one.
  point(c, t, spoken) {
    for (const other of app.charts) if (other !== c) other.tip.hidden = true;
    app.cursor = c ? t : null;
    if (c && (t < app.view.a || t > app.view.b)) {
      const wide = app.view.b - app.view.a;
      app.view = { a: t - wide / 2, b: t + wide / 2 };
      app.show(app.view.a, app.view.b);
    }
    app.at = c || null;
    for (const other of app.charts) app.cross(other);
    if (c && spoken) document.getElementById('spoken').textContent = c.said;
  },
  cross(c) {
    const t = app.cursor, seen = t !== null && t >= app.view.a && t <= app.view.b && c.x;
    c.cursor.setAttribute('visibility', seen ? 'visible' : 'hidden');
    c.knob.setAttribute('visibility', 'hidden');
    if (!seen) { c.tip.hidden = true; return; }
    const x = Math.round(c.x(t)) + 0.5;
    c.cursor.setAttribute('d', `M${x} ${c.top}V${c.height}`);
    const k = nearest(c.level, t), v = k >= 0 && c.limit >= 0 ? c.level.limits[c.limit].used[k] : -1;
    if (v >= 0 && Math.abs(c.level.t[k] - t) <= c.level.step) {
      c.knob.setAttribute('visibility', 'visible');
      c.knob.setAttribute('cx', x);
      c.knob.setAttribute('cy', c.y(v));
    }
    if (app.at !== c) return;
    c.said = readout(app.data, c, t, app.mode);
    const wide = c.tip.offsetWidth;
    c.tip.style.left = (x + 14 + wide <= c.width ? x + 14 : Math.max(0, x - 14 - wide)) + 'px';
    c.tip.style.top = c.svg.offsetTop + c.top + 'px';
  },

  // pick shows one run, or all for -1.
  pick(which) {
    if (which === app.which) return;
    app.which = which;
    const chooser = document.getElementById('run');
    if (chooser) chooser.value = String(which);
    const home = document.getElementById('charts');
    home.replaceChildren();
    app.charts = app.data.runs.map((run, index) => ({ run, index })).filter((c) => which < 0 || c.index === which);
    for (const c of app.charts) app.build(c, home);
    app.charts.forEach((c, i) => {
      const next = app.charts[i + 1]; // one legend for charts that have the same
      c.legend.hidden = Boolean(next) && next.legend.textContent === c.legend.textContent;
    });
    app.show(app.view.a, app.view.b);
  },
  // reveal shows a run that may be among those that are shown.
  reveal(which) {
    if (!app.charts.some((c) => c.index === which)) app.pick(which);
  },
  build(c, home) {
    const { run } = c, several = app.data.runs.length > 1;
    c.limit = run.limits.findIndex((l) => l.primary);
    c.box = el('figure', { class: 'chart' }, home);
    const head = several ? el('div', { class: 'name' }, c.box) : document.getElementById('timeline-h').parentElement;
    if (several) el('h3', {}, head, run.name);
    if (run.limits.length > 1) {
      const label = el('label', { class: 'pick' }, null, 'limit ');
      if (several) head.append(label); else head.firstElementChild.after(label);
      const select = el('select', {}, label);
      run.limits.forEach((l, i) => el('option', i === c.limit ? { value: i, selected: '' } : { value: i }, select, l.title));
      select.addEventListener('change', () => {
        c.limit = Number(select.value);
        c.range = null;
        legend(c, app);
        app.redraw();
      });
    }
    c.svg = el('svg:svg', {
      class: 'live', tabindex: 0, role: 'application', 'aria-roledescription': 'chart',
      'aria-label': `Memory of ${run.name} over time. Arrow keys move the cursor, plus and minus zoom, n and p go from event to event.`,
    }, c.box);
    c.tip = el('div', { class: 'tip', hidden: '' }, c.box);
    c.legend = el('ul', { class: 'legend' }, c.box);
    legend(c, app);
    gestures(c, app);
  },
  follow(index, proc) {
    app.reveal(index);
    for (const c of app.charts) c.proc = c.index === index && proc >= 0 ? c.run.procs[proc] : null;
    app.redraw();
  },
  strip() {
    const svg = document.getElementById('strip'), wide = svg.clientWidth || 300, all = app.data.length, x = (t) => t / all * wide;
    svg.replaceChildren();
    svg.setAttribute('viewBox', `0 0 ${wide} 28`);
    el('svg:rect', { class: 'base', width: wide, height: 28, rx: 3 }, svg);
    let top = 1;
    const shapes = app.charts.slice(0, 8).map((c) => {
      const l = c.run.levels[0] && level(c.run.levels[0]);
      if (!l || !l.n) return null;
      const pieces = columns(l, c.limit, 0, all, Math.max(1, wide / 2)), v = (p) => (c.limit >= 0 && p.used >= 0 ? p.used : l.sum[p.k]);
      for (const piece of pieces) for (const p of piece) top = Math.max(top, v(p));
      return { pieces, v };
    });
    for (const s of shapes) if (s) el('svg:path', { class: 'shape', d: areaPath(s.pieces, () => 0, s.v, x, (v) => 28 - v / top * 25) }, svg);
    const a = x(app.view.a), b = x(app.view.b);
    el('svg:rect', { class: 'off', width: a, height: 28 }, svg);
    el('svg:rect', { class: 'off', x: b, width: Math.max(0, wide - b), height: 28 }, svg);
    el('svg:rect', { class: 'window', x: a + 0.5, y: 0.5, width: Math.max(2, b - a - 1), height: 27, rx: 3 }, svg);
    for (const at of [a, b]) el('svg:rect', { class: 'grip', x: Math.min(wide - 4, Math.max(0, at - 2)), y: 6, width: 4, height: 16, rx: 2 }, svg);
  },
};

function legend(c, app) {
  c.legend.replaceChildren();
  const item = (cls, text, d, home) => {
    const li = el('li', {}, c.legend), at = home ? el('button', home, li) : li;
    const svg = el('svg:svg', { viewBox: '0 0 16 12', 'aria-hidden': 'true' }, at);
    if (d) el('svg:path', { class: cls, d, transform: d.startsWith('M0 6') ? '' : 'translate(8 6)' }, svg);
    else el('svg:rect', { class: cls, x: 3, y: 1, width: 10, height: 10, rx: 2 }, svg);
    at.append(text);
    return at;
  };
  const LINE = 'M0 6.5H16', { run } = c, stack = stackOf(c), l = run.limits[c.limit];
  for (const i of stack) item('band ' + roleClass(run.roles[i]), TITLES[run.roles[i]] || run.roles[i]);
  const own = run.roles.indexOf('rsswarden');
  if (own >= 0 && !stack.includes(own)) {
    const button = item('own', 'rsswarden itself', LINE, { type: 'button', 'aria-pressed': String(Boolean(c.own)), title: 'this limit does not count it' });
    button.addEventListener('click', () => {
      c.own = !c.own;
      button.setAttribute('aria-pressed', String(c.own));
      app.redraw();
    });
  }
  if (l) {
    item('used', l.means, LINE);
    const raw = run.levels[0] && level(run.levels[0]).limits[c.limit];
    if (raw && raw.charged.some((v) => v > 0)) item('charged', 'charged, with page cache', LINE);
    if (raw && raw.working.some((v) => v > 0)) item('working', 'working set', LINE);
  }
  const seen = new Set();
  for (const m of run.marks) {
    if (seen.has(m.glyph) || !m.action) continue;
    seen.add(m.glyph);
    item('mark decision', m.glyph, app.data.glyphs[m.glyph]);
  }
  if (run.marks.some((m) => m.hollow)) item('mark hollow decision', 'no effect', app.data.glyphs.trim);
  if (run.trims.cells.length) item('strip-trim', 'trims by workers');
}

function start() {
  const by = (id) => document.getElementById(id), whole = () => app.show(0, app.data.length);
  theme(by('theme'));
  for (const button of document.querySelectorAll('button[data-copy]')) button.addEventListener('click', () => copy(button));
  printing();
  for (const table of document.querySelectorAll('table[data-sortable]')) sortable(table);
  if (!app.data.runs.length) return;
  app.data.length = Math.max(app.data.length, 1000);
  app.view = { a: 0, b: app.data.length };
  const mid = () => (app.cursor === null ? (app.view.a + app.view.b) / 2 : app.cursor);
  const press = { in: () => app.zoom(0.5, mid()), out: () => app.zoom(2, mid()), whole, end: () => app.show(app.data.length - 5 * M, app.data.length) };
  for (const id in press) by(id).addEventListener('click', press[id]);
  by('mode').addEventListener('click', () => {
    app.mode = app.mode === 'clock' ? 'elapsed' : 'clock';
    by('mode').textContent = app.mode === 'clock' ? 'Axis: time of day' : 'Axis: elapsed';
    app.redraw();
  });
  const chooser = by('run');
  if (chooser) chooser.addEventListener('change', () => app.pick(Number(chooser.value)));
  app.which = NaN;
  document.documentElement.classList.add('on');
  app.pick(chooser ? Number(chooser.value) : -1);
  stripGestures(by('strip'), app);
  jumps(app);
  let wide = document.body.clientWidth;
  addEventListener('resize', () => {
    if (document.body.clientWidth !== wide) app.redraw();
    wide = document.body.clientWidth;
  });
}

start();
