// Decoding: a column begins with its unit in KiB, then come differences, and
// null with a number for so many values that do not differ.
const KIB = 1024;

function column(list, n, scale) {
  const out = new Float32Array(n), unit = list[0] * scale;
  let v = 0, k = 0;
  for (let i = 1; i < list.length && k < n; i++) {
    const d = list[i];
    if (d === null) {
      const same = list[++i], at = v < 0 ? -1 : v * unit;
      out.fill(at, k, k + same);
      k += same;
    } else {
      v += d;
      out[k++] = v < 0 ? -1 : v * unit;
    }
  }
  return out;
}

// level unpacks the points of one resolution when they are first drawn.
function level(raw) {
  if (raw.ready) return raw.ready;
  let n = 0;
  for (let i = 1; i < raw.stretches.length; i += 2) n += raw.stretches[i];
  const l = { from: raw.from, step: raw.step, n, t: new Float64Array(n), fresh: new Uint8Array(n), bands: [], limits: [] };
  for (let i = 0, k = 0; i < raw.stretches.length; i += 2) {
    l.fresh[k] = 1; // nothing joins it to the point before
    for (let j = 0; j < raw.stretches[i + 1]; j++) l.t[k++] = raw.from + (raw.stretches[i] + j + 0.5) * raw.step;
  }
  l.sum = new Float32Array(n);
  for (const b of raw.bands) {
    const band = { anon: column(b.anon, n, KIB), file: column(b.file, n, KIB), shmem: column(b.shmem, n, KIB), count: column(b.count, n, 1) };
    for (let k = 0; k < n; k++) l.sum[k] += band.anon[k] + band.file[k] + band.shmem[k];
    l.bands.push(band);
  }
  for (const x of raw.limits) {
    const limit = { used: column(x.used, n, KIB), charged: column(x.charged, n, KIB), working: column(x.working, n, KIB), size: column(x.size, n, KIB) };
    const low = column(x.low, n, KIB), most = column(x.most, n, KIB);
    for (let k = 0; k < n; k++) {
      low[k] = limit.used[k] - low[k];
      most[k] = limit.used[k] + most[k];
    }
    limit.low = low;
    limit.most = most;
    l.limits.push(limit);
  }
  raw.ready = l;
  return l;
}

// levelFor is the finest one that has all of the view.
function levelFor(run, a) {
  let best = run.levels[0];
  for (const l of run.levels) if (l.from <= Math.max(a, run.from) && l.step <= best.step) best = l;
  return best ? level(best) : null;
}

// search returns the first point at or after t.
function search(t, at) {
  let low = 0, high = t.length;
  while (low < high) {
    const mid = (low + high) >> 1;
    if (t[mid] < at) low = mid + 1; else high = mid;
  }
  return low;
}

// nearest returns the point that a moment falls into, -1 where there is none.
function nearest(l, at) {
  if (!l || !l.n) return -1;
  const k = search(l.t, at), c = [k - 1, k].filter((i) => i >= 0 && i < l.n);
  const best = c.reduce((x, y) => (Math.abs(l.t[x] - at) <= Math.abs(l.t[y] - at) ? x : y));
  return best;
}

// columns makes of the points of a view at most one for each pixel. A column
// keeps the highest use, the lowest, and the stack with the greatest sum.
function columns(l, limit, a, b, width) {
  const first = Math.max(0, search(l.t, a) - 1), end = Math.min(l.n, search(l.t, b) + 1);
  const pieces = [], wide = (b - a) / width, x = limit >= 0 ? l.limits[limit] : null;
  const single = wide <= l.step;
  let piece = null, last = null, lastCol = NaN;
  for (let k = first; k < end; k++) {
    const col = single ? k : Math.floor((l.t[k] - a) / wide);
    if (l.fresh[k] && !(col <= lastCol + 1 && !single)) piece = null;
    if (piece && col === lastCol) {
      if (l.sum[k] > l.sum[last.k]) last.k = k;
      if (x && x.used[k] >= 0) {
        if (x.used[k] > last.used) last.used = x.used[k];
        if (last.low < 0 || x.low[k] < last.low) last.low = x.low[k];
        if (x.most[k] > last.most) last.most = x.most[k];
        if (x.charged[k] > last.charged) last.charged = x.charged[k];
        if (x.working[k] > last.working) last.working = x.working[k];
        if (last.size <= 0 || x.size[k] < last.size) last.size = x.size[k];
      }
      continue;
    }
    last = { t: single ? l.t[k] : a + (col + 0.5) * wide, k, used: -1, low: -1, most: -1, charged: -1, working: -1, size: -1 };
    if (x) for (const c of ['used', 'low', 'most', 'charged', 'working', 'size']) last[c] = x[c][k];
    if (!piece) pieces.push(piece = []);
    piece.push(last);
    lastCol = col;
  }
  return pieces;
}
