// Tables are in the page already. What the script adds is order, and ways from
// a row to the chart.
function sortable(table) {
  const heads = [...table.tHead.rows[0].cells], body = table.tBodies[0];
  heads.forEach((th, i) => {
    if (!th.hasAttribute('data-sort')) return;
    const text = th.textContent, button = el('button', { type: 'button' }, null, text);
    th.replaceChildren(button);
    button.addEventListener('click', () => {
      const down = th.getAttribute('aria-sort') ? th.getAttribute('aria-sort') !== 'descending' : th.getAttribute('data-sort') === 'n';
      for (const h of heads) h.removeAttribute('aria-sort');
      th.setAttribute('aria-sort', down ? 'descending' : 'ascending');
      const key = (row) => row.cells[i].getAttribute('data-v') ?? row.cells[i].textContent;
      const number = th.getAttribute('data-sort') === 'n';
      const rows = [...body.rows].sort((p, q) => {
        const u = key(p), v = key(q);
        return (number ? u - v : u.localeCompare(v)) * (down ? -1 : 1);
      });
      body.append(...rows);
    });
  });
}

function jumps(app) {
  for (const cell of document.querySelectorAll('td[data-t]')) {
    const button = el('button', { type: 'button', title: 'show on the timeline' }, null, cell.textContent);
    cell.replaceChildren(button);
    button.addEventListener('click', () => {
      const t = Number(cell.getAttribute('data-t')), run = Number(cell.getAttribute('data-run'));
      app.reveal(run);
      const wide = Math.min(app.data.length, Math.max(4 * M, app.data.length / 50));
      app.show(t - wide / 2, t + wide / 2);
      const c = app.charts.find((x) => x.index === run);
      if (!c) return;
      c.svg.focus({ preventScroll: true });
      app.point(c, t, true);
      document.getElementById('timeline').scrollIntoView({ block: 'start', behavior: calm() ? 'auto' : 'smooth' });
    });
  }
  for (const cell of document.querySelectorAll('td[data-proc]')) {
    const button = el('button', { type: 'button', 'aria-pressed': 'false', title: 'draw on the timeline' }, null, cell.textContent);
    cell.replaceChildren(button);
    button.addEventListener('click', () => {
      const on = button.getAttribute('aria-pressed') !== 'true';
      for (const other of document.querySelectorAll('td[data-proc] button')) {
        other.setAttribute('aria-pressed', 'false');
        other.closest('tr').classList.remove('on');
      }
      button.setAttribute('aria-pressed', String(on));
      cell.parentElement.classList.toggle('on', on);
      app.follow(Number(cell.getAttribute('data-run')), on ? Number(cell.getAttribute('data-proc')) : -1);
    });
  }
}

const calm = () => matchMedia('(prefers-reduced-motion: reduce)').matches;

// theme goes through the system's choice, dark and light.
function theme(button) {
  const root = document.documentElement, order = ['', 'dark', 'light'], names = { '': 'Theme: system', dark: 'Theme: dark', light: 'Theme: light' };
  const set = (v) => {
    if (v) root.setAttribute('data-theme', v); else root.removeAttribute('data-theme');
    button.textContent = names[v];
  };
  set('');
  button.addEventListener('click', () => set(order[(order.indexOf(root.getAttribute('data-theme') || '') + 1) % 3]));
}

// copy puts a line into the clipboard. A page from a file may not use the interface for it
// everywhere: then what is selected is copied.
async function copy(button) {
  try {
    await navigator.clipboard.writeText(button.dataset.copy);
  } catch {
    getSelection().selectAllChildren(button.parentElement.querySelector('code'));
    document.execCommand('copy');
  }
  button.textContent = 'Copied';
}

// printing opens all that is closed, and closes it again.
function printing() {
  let closed = [];
  addEventListener('beforeprint', () => {
    closed = [...document.querySelectorAll('details:not([open])')];
    for (const d of closed) d.open = true;
  });
  addEventListener('afterprint', () => { for (const d of closed) d.open = false; });
}
