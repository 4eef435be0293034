// The readout of one moment. Text of processes goes in as text, never as HTML.
function readout(data, c, t, mode) {
  const run = c.run, l = c.level, k = nearest(l, t);
  const tip = c.tip;
  tip.replaceChildren();
  const when = el('div', { class: 'when' }, tip);
  el('b', {}, when, (data.length > 20 * H ? clock(data, t, 'day') + ' ' : '') + clock(data, t));
  el('span', {}, when, span(Math.max(0, t - run.from)) + ' after the start');
  let spoken = clock(data, t) + ': ';
  const inside = k >= 0 && Math.abs(l.t[k] - t) <= Math.max(l.step, (c.view.b - c.view.a) / 200);
  if (!inside) {
    el('div', {}, tip, 'no sample here');
    spoken += 'no sample';
  } else {
    if (c.limit >= 0) spoken += limitRows(tip, run, l, c.limit, k);
    roleRows(tip, run, l, k);
    spoken += ', RSS of all processes ' + size(l.sum[k]);
    if (c.proc) el('div', { class: 'event' }, tip, `${c.proc.name || '?'} (PID ${c.proc.pid}): ` + procAt(c.proc, t));
    if (l.step > 1500) el('div', { class: 'part soft' }, tip, 'highest of ' + span(l.step).replace('.0', ''));
  }
  const near = (c.view.b - c.view.a) / (c.right - c.left) * 8;
  const marks = run.marks.filter((m) => Math.abs(m.t - t) <= near);
  for (const m of marks.slice(0, 4)) {
    const text = m.text + (m.result ? ': ' + m.result : '');
    el('div', { class: 'event' }, tip, text);
    spoken += '; ' + text;
  }
  if (marks.length > 4) el('div', { class: 'event' }, tip, `and ${marks.length - 4} more events`);
  tip.hidden = false;
  return spoken;
}

function limitRows(tip, run, l, limit, k) {
  const x = l.limits[limit], used = x.used[k], of = x.size[k];
  if (used < 0) return 'not read';
  const table = el('table', {}, tip), row = (name, v) => {
    const tr = el('tr', {}, table);
    el('td', {}, tr, name);
    el('td', {}, tr).append(v);
  };
  const b = document.createElement('b');
  b.textContent = size(used) + (of > 0 ? ` of ${size(of)}, ${(100 * used / of).toFixed(0)} %` : '');
  row('used', b);
  if (x.most[k] > used * 1.001) row('at most', size(x.most[k]));
  if (x.charged[k] > 0) row('charged', size(x.charged[k]));
  if (x.working[k] > 0) row('working set', size(x.working[k]));
  return 'used ' + b.textContent;
}

function roleRows(tip, run, l, k) {
  const table = el('table', {}, tip), head = el('tr', {}, table);
  for (const h of ['RSS', 'sum', 'anon', 'file', 'shmem']) el('th', {}, head, h);
  for (let i = run.roles.length - 1; i >= 0; i--) {
    const b = l.bands[i], sum = b.anon[k] + b.file[k] + b.shmem[k];
    if (!b.count[k]) continue;
    const tr = el('tr', {}, table), name = el('td', {}, tr);
    el('i', { class: roleClass(run.roles[i]) }, name);
    name.append((run.roles[i] === 'beside' ? 'beside' : run.roles[i]) + (b.count[k] > 1 ? ' ×' + b.count[k] : ''));
    el('td', {}, tr, size(sum));
    for (const part of [b.anon, b.file, b.shmem]) el('td', { class: 'part' }, tr, part[k] > 0 ? size(part[k]) : '–');
  }
  const tr = el('tr', { class: 'sum' }, table);
  el('td', {}, tr, 'all');
  el('td', {}, tr, size(l.sum[k]));
  for (let i = 0; i < 3; i++) el('td', {}, tr);
}

function procAt(p, t) {
  const k = Math.floor((t - p.from) / p.step), v = p.ready && k >= 0 && k < p.ready.length ? p.ready[k] : -1;
  return v >= 0 ? size(v) : 'not there';
}
