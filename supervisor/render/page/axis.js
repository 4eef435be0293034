// Numbers as people read them: sizes in powers of 1024, times of day on the
// clock of the run.
const UNITS = [[2 ** 40, 'TiB'], [2 ** 30, 'GiB'], [2 ** 20, 'MiB'], [2 ** 10, 'KiB']];

function size(b) {
  for (const [unit, name] of UNITS) {
    if (b < unit) continue;
    const v = b / unit;
    return v.toFixed(v >= 99.95 ? 0 : v >= 9.995 ? 1 : 2) + ' ' + name;
  }
  return Math.round(b) + ' B';
}

// A limit is written as people type it, 1100 MiB and never 1.07 GiB, and what is used of it
// in the same unit.
const unitOf = (b) => UNITS.find(([u, name]) => (name === 'GiB' ? b >= 10 * u || b >= u && b % u === 0 : name !== 'TiB' && b >= u)) || [1, 'B'];

function inUnit(b, unit) {
  const v = b / unit, one = unit === 2 ** 30 ? v < 99.95 : b % unit !== 0 && v < 9.95;
  return v.toFixed(one ? 1 : 0);
}

const limitSize = (b) => inUnit(b, unitOf(b)[0]) + ' ' + unitOf(b)[1];
const usedOf = (used, limit) => inUnit(used, unitOf(limit)[0]) + ' of ' + limitSize(limit);

function tickSize(b) {
  for (const [unit, name] of UNITS) if (b >= unit) return b / unit + ' ' + name;
  return '0';
}

function sizeTicks(top, most) {
  let step = KIB;
  while (most * step < top) step *= 2;
  const out = [];
  for (let v = 0; v <= top; v += step) out.push(v);
  return out;
}

const two = (v) => String(Math.floor(v)).padStart(2, '0');

function span(ms) {
  const s = Math.round(ms / 1000);
  if (ms < 9950) return (ms / 1000).toFixed(1) + ' s';
  if (s < 60) return s + ' s';
  if (s < 3600) return Math.floor(s / 60) + ' min ' + two(s % 60) + ' s';
  if (s < 86400) return Math.floor(s / 3600) + ' h ' + two(s % 3600 / 60) + ' min';
  return Math.floor(s / 86400) + ' d ' + two(s % 86400 / 3600) + ' h';
}

// clock is a time of day; the page's own zone, not the reader's.
function clock(data, t, parts) {
  const d = new Date(data.start + data.zone * 1000 + t), iso = d.toISOString();
  if (parts === 'day') return d.getUTCDate() + ' ' + ['Jan', 'Feb', 'Mar', 'Apr', 'May', 'Jun', 'Jul', 'Aug', 'Sep', 'Oct', 'Nov', 'Dec'][d.getUTCMonth()];
  if (parts === 'min') return iso.slice(11, 16);
  if (parts === 'ms') return iso.slice(11, 21);
  return iso.slice(11, 19);
}

const S = 1000, M = 60 * S, H = 60 * M, D = 24 * H;
const STEPS = [S / 10, S / 5, S / 2, S, 2 * S, 5 * S, 10 * S, 15 * S, 30 * S, M, 2 * M, 5 * M, 10 * M, 15 * M, 30 * M, H, 2 * H, 3 * H, 6 * H, 12 * H, D, 2 * D, 7 * D, 14 * D];

function elapsed(t, step) {
  const sign = t < 0 ? '−' : '', s = Math.abs(t) / 1000;
  if (step >= D) return sign + Math.round(s / 86400) + ' d';
  const h = Math.floor(s / 3600), m = Math.floor(s % 3600 / 60), sec = s % 60;
  if (step < S) return sign + (h ? h + ':' + two(m) : m) + ':' + sec.toFixed(1).padStart(4, '0');
  if (step < M) return sign + (h ? h + ':' + two(m) : m) + ':' + two(sec);
  return sign + h + ':' + two(m);
}

function timeTicks(data, a, b, most, mode) {
  const step = STEPS.find((s) => (b - a) / s <= most) || STEPS[STEPS.length - 1];
  const zero = mode === 'elapsed' ? 0 : data.start + data.zone * 1000;
  const out = [];
  for (let t = Math.ceil((a + zero) / step) * step - zero; t <= b; t += step) {
    let text;
    if (mode === 'elapsed') text = elapsed(t, step);
    else if (step >= D) text = clock(data, t, 'day');
    else if (step >= M) text = clock(data, t, 'min') === '00:00' && b - a > 12 * H ? clock(data, t, 'day') : clock(data, t, 'min');
    else text = clock(data, t, step < S ? 'ms' : 's');
    out.push([t, text]);
  }
  return out;
}
