// Zoom, pan and cursor, by pointer, wheel and keys.
function gestures(c, app) {
  const { svg } = c, pointers = new Map();
  let brush = null, pan = null, pinch = null;
  const at = (e) => {
    const box = svg.getBoundingClientRect();
    if (e.clientY) c.onLanes = (e.clientY - box.top) * c.height / box.height > c.bottom + 20;
    const share = ((e.clientX - box.left) * c.width / box.width - c.left) / (c.right - c.left);
    return app.view.a + Math.min(1, Math.max(0, share)) * (app.view.b - app.view.a);
  };
  svg.addEventListener('pointerdown', (e) => {
    if (e.button > 0) return;
    pointers.set(e.pointerId, e.clientX);
    try { svg.setPointerCapture(e.pointerId); } catch { /* a pointer that is gone already */ }
    if (pointers.size === 2) {
      brush = pan = null;
      const xs = [...pointers.values()];
      pinch = { wide: Math.abs(xs[0] - xs[1]), a: app.view.a, b: app.view.b, mid: at({ clientX: (xs[0] + xs[1]) / 2 }) };
    } else if (e.pointerType === 'touch') app.point(c, at(e));
    else if (e.shiftKey || e.button === 1) pan = { x: e.clientX, a: app.view.a, b: app.view.b };
    else brush = { x: e.clientX, t: at(e), on: false };
  });
  svg.addEventListener('pointermove', (e) => {
    if (pointers.has(e.pointerId)) pointers.set(e.pointerId, e.clientX);
    if (pinch && pointers.size === 2) {
      const xs = [...pointers.values()], scale = pinch.wide / Math.max(20, Math.abs(xs[0] - xs[1]));
      const box = svg.getBoundingClientRect(), wide = (pinch.b - pinch.a) * scale;
      const share = ((xs[0] + xs[1]) / 2 - box.left - c.left) / (c.right - c.left);
      app.show(pinch.mid - share * wide, pinch.mid + (1 - share) * wide);
    } else if (pan) {
      const by = (e.clientX - pan.x) / (c.right - c.left) * (pan.b - pan.a);
      app.show(pan.a - by, pan.b - by);
    } else if (brush) {
      brush.on = brush.on || Math.abs(e.clientX - brush.x) > 4;
      if (brush.on) app.brush(c, brush.t, at(e));
    } else if (e.pointerType !== 'touch' || pointers.has(e.pointerId)) app.point(c, at(e));
  });
  const end = (e) => {
    pointers.delete(e.pointerId);
    if (brush && brush.on && e.type === 'pointerup') {
      const t = at(e);
      app.show(Math.min(t, brush.t), Math.max(t, brush.t));
    }
    if (pointers.size < 2) pinch = null;
    brush = pan = null;
    app.brush(c, 0, 0);
  };
  svg.addEventListener('pointerup', end);
  svg.addEventListener('pointercancel', end);
  svg.addEventListener('pointerleave', (e) => { if (e.pointerType === 'mouse' && !brush) app.point(null); });
  svg.addEventListener('dblclick', () => app.show(0, app.data.length));
  // A wheel that rolls over the chart on its way down the page goes on rolling
  // the page: it zooms where the chart was clicked before, or with Ctrl.
  svg.addEventListener('wheel', (e) => {
    const wide = app.view.b - app.view.a, sideways = Math.abs(e.deltaX) > Math.abs(e.deltaY);
    if (sideways && wide < app.data.length) {
      e.preventDefault();
      const by = e.deltaX / (c.right - c.left) * wide;
      app.show(app.view.a + by, app.view.b + by);
    } else if (e.ctrlKey || e.metaKey || document.activeElement === svg) {
      if (e.deltaY > 0 && wide >= app.data.length && !e.ctrlKey) return;
      e.preventDefault();
      app.zoom(2 ** (Math.max(-120, Math.min(120, e.deltaY)) / 160), at(e));
    }
  }, { passive: false });
  svg.addEventListener('keydown', (e) => {
    c.onLanes = false;
    const wide = app.view.b - app.view.a, pixel = wide / (c.right - c.left);
    const t = app.cursor === null ? (app.view.a + app.view.b) / 2 : app.cursor;
    const move = (by) => app.point(c, Math.min(c.run.to, Math.max(c.run.from, t + by)), true);
    const hop = (next) => { if (next) app.point(c, next.t, true); };
    const keys = {
      ArrowLeft: () => move(-pixel * (e.shiftKey ? 40 : 4)),
      ArrowRight: () => move(pixel * (e.shiftKey ? 40 : 4)),
      '+': () => app.zoom(0.5, t), '=': () => app.zoom(0.5, t), '-': () => app.zoom(2, t), 0: () => app.show(0, app.data.length),
      PageUp: () => app.show(app.view.a - wide / 2, app.view.b - wide / 2),
      PageDown: () => app.show(app.view.a + wide / 2, app.view.b + wide / 2),
      Home: () => app.point(c, c.run.from, true), End: () => app.point(c, c.run.to, true),
      n: () => hop(c.run.marks.find((m) => m.t > t + 1)), p: () => hop(c.run.marks.findLast((m) => m.t < t - 1)),
      Escape: () => app.point(null),
    };
    if (!keys[e.key] || e.altKey || e.ctrlKey || e.metaKey) return;
    e.preventDefault();
    keys[e.key]();
  });
  svg.addEventListener('blur', () => app.point(null));
}

// strip is the whole run in small, with a window that can be moved.
function stripGestures(svg, app) {
  let hold = null;
  const at = (e) => {
    const box = svg.getBoundingClientRect();
    return (e.clientX - box.left) / box.width * app.data.length;
  };
  svg.addEventListener('pointerdown', (e) => {
    const t = at(e), { a, b } = app.view, near = app.data.length * 10 / svg.getBoundingClientRect().width;
    svg.setPointerCapture(e.pointerId);
    if (Math.abs(t - a) < near) hold = { end: 'a' };
    else if (Math.abs(t - b) < near) hold = { end: 'b' };
    else {
      if (t < a || t > b) app.show(t - (b - a) / 2, t + (b - a) / 2);
      hold = { t, a: app.view.a, b: app.view.b };
    }
  });
  svg.addEventListener('pointermove', (e) => {
    if (!hold) return;
    const t = at(e);
    if (hold.end === 'a') app.show(Math.min(t, app.view.b - app.least), app.view.b);
    else if (hold.end === 'b') app.show(app.view.a, Math.max(t, app.view.a + app.least));
    else app.show(hold.a + t - hold.t, hold.b + t - hold.t);
  });
  const end = () => { hold = null; };
  svg.addEventListener('pointerup', end);
  svg.addEventListener('pointercancel', end);
}
