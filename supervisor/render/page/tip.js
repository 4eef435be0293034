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
    if (!c.onLanes) el('div', {}, tip, 'no sample here');
    spoken += 'no sample';
  } else {
    if (c.limit >= 0) spoken += limitRows(tip, run, l, c.limit, k);
    if (!c.onLanes) spoken += roleRows(tip, c, l, k);
    if (c.proc) el('div', { class: 'event' }, tip, `${c.proc.name || '?'} (PID ${c.proc.pid}): ` + procAt(c.proc, t));
    if (l.step > 1500 && !c.onLanes) el('div', { class: 'part soft' }, tip, `maximum of ${span(l.step).replace('.0', '')}`);
  }
  spoken += happened(data, c, t, tip);
  tip.hidden = false;
  return spoken;
}

// happened lists the events near a moment, and the trims; all of them, with their times,
// where the pointer is on the lanes.
function happened(data, c, t, tip) {
  const { run } = c, near = (c.view.b - c.view.a) / (c.right - c.left) * 8, most = c.onLanes ? 12 : 4;
  const marks = run.marks.filter((m) => Math.abs(m.t - t) <= near);
  let spoken = '', trims = 0, dropped = 0;
  const row = (text) => { el('div', { class: 'event' }, tip, text); spoken += '; ' + text; };
  for (const m of marks.slice(0, most)) row((c.onLanes ? clock(data, m.t) + ' ' : '') + m.text + (m.result ? ': ' + m.result : ''));
  if (marks.length > most) el('div', { class: 'event' }, tip, `and ${marks.length - most} more events`);
  eachTrim(run, t - near, t + near, (_, n, kib) => { trims += n; dropped += kib * KIB; });
  if (trims) row(`${trims} trim${trims > 1 ? 's' : ''} by workers, ${size(dropped)} of pages dropped`);
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
  b.textContent = of > 0 ? `${usedOf(used, of)}, ${(100 * used / of).toFixed(0)} %` : size(used);
  row('used', b);
  if (x.most[k] > used * 1.001) row('at most', size(x.most[k]));
  if (x.charged[k] > 0) row('charged', size(x.charged[k]));
  if (x.working[k] > 0) row('working set', size(x.working[k]));
  return 'used ' + b.textContent;
}

// roleRows lists what the limit counts, from the top of the stack, and the sum of it; then
// what it does not count.
function roleRows(tip, c, l, k) {
  const { run } = c, table = el('table', {}, tip), head = el('tr', {}, table), stack = stackOf(c);
  for (const h of ['RSS', 'sum', 'anon', 'file', 'shmem']) el('th', {}, head, h);
  const row = (i, note) => {
    const b = l.bands[i], sum = b.anon[k] + b.file[k] + b.shmem[k];
    if (!b.count[k]) return 0;
    const tr = el('tr', {}, table), name = el('td', {}, tr);
    el('i', { class: roleClass(run.roles[i]) }, name);
    name.append(run.roles[i] + (b.count[k] > 1 ? ' ×' + b.count[k] : '') + note);
    el('td', {}, tr, size(sum));
    for (const part of [b.anon, b.file, b.shmem]) el('td', { class: 'part' }, tr, part[k] > 0 ? size(part[k]) : '–');
    return sum;
  };
  const all = stack.toReversed().reduce((sum, i) => sum + row(i, ''), 0);
  if (all) {
    const tr = el('tr', { class: 'sum' }, table);
    for (const text of ['sum', size(all), '', '', '']) el('td', {}, tr, text);
  }
  run.roles.forEach((_, i) => { if (!stack.includes(i)) row(i, ', not counted'); });
  return all ? ', summed RSS ' + size(all) : '';
}

function procAt(p, t) {
  const k = Math.floor((t - p.from) / p.step), v = p.ready && k >= 0 && k < p.ready.length ? p.ready[k] : -1;
  return v >= 0 ? size(v) : 'not there';
}
