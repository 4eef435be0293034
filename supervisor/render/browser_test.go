package render

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/supervisor/analysis"
	"github.com/rsswarden/rsswarden/supervisor/record"
	"github.com/rsswarden/rsswarden/supervisor/record/recordtest"
	"github.com/rsswarden/rsswarden/supervisor/scenetest"
	"github.com/rsswarden/rsswarden/supervisor/wardentest"
)

// browser is a headless Chromium that is talked to through its descriptors 3
// and 4: one JSON message after the other, each ended by NUL.
type browser struct {
	t       *testing.T
	to      *os.File
	from    *bufio.Reader
	session string
	still   bool // scripts are off, and nothing is drawn by them
	seq     int
	events  []message
}

type message struct {
	ID      int             `json:"id,omitempty"`
	Session string          `json:"sessionId,omitempty"`
	Method  string          `json:"method,omitempty"`
	Params  json.RawMessage `json:"params,omitempty"`
	Result  json.RawMessage `json:"result,omitempty"`
	Error   *struct {
		Message string `json:"message"`
	} `json:"error,omitempty"`
}

// chromiumBinary is the program itself: Debian's /usr/bin/chromium is a shell
// script that looks for other things first.
func chromiumBinary() string {
	for _, name := range []string{"/usr/lib/chromium/chromium", "chromium", "chromium-browser", "google-chrome"} {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	return ""
}

// startBrowser starts a Chromium with one empty page. It skips the test where
// there is none.
func startBrowser(t *testing.T) *browser {
	t.Helper()
	path := chromiumBinary()
	if path == "" {
		t.Skip("no chromium is installed: apt-get install chromium")
	}
	fromUs, toIt, err := os.Pipe()
	wardentest.NoError(t, err)
	fromIt, toUs, err := os.Pipe()
	wardentest.NoError(t, err)
	var said bytes.Buffer
	cmd := exec.Command(path, "--headless=new", "--no-sandbox", "--remote-debugging-pipe", "--disable-gpu", "--disable-dev-shm-usage",
		"--no-first-run", "--disable-extensions", "--disable-background-networking", "--disable-component-update", "--disable-sync",
		"--hide-scrollbars", "--user-data-dir="+t.TempDir(), "about:blank")
	cmd.ExtraFiles = []*os.File{fromUs, toUs}
	cmd.Stderr = &said
	cmd.WaitDelay = 5 * time.Second
	if err := cmd.Start(); err != nil {
		t.Skipf("cannot start chromium: %v", err)
	}
	fromUs.Close()
	toUs.Close()
	b := &browser{t: t, to: toIt, from: bufio.NewReaderSize(fromIt, 1<<20)}
	// What takes so long hangs.
	hangs := time.AfterFunc(8*time.Minute, func() { cmd.Process.Kill() })
	t.Cleanup(func() {
		if !t.Failed() {
			b.quiet()
		}
		hangs.Reset(10 * time.Second)
		fmt.Fprintf(toIt, `{"id":%d,"method":"Browser.close"}%c`, b.seq+1, 0)
		cmd.Wait()
		hangs.Stop()
		toIt.Close()
		fromIt.Close()
		if t.Failed() && said.Len() < 4000 {
			t.Logf("chromium said: %s", said.String())
		}
	})
	return b
}

// next is the next message. Events are kept.
func (b *browser) next() (m message) {
	b.t.Helper()
	line, err := b.from.ReadBytes(0)
	if err != nil {
		b.t.Fatalf("chromium has ended: %v", err)
	}
	b.decode(line[:len(line)-1], &m)
	if m.Method != "" {
		b.events = append(b.events, m)
	}
	return m
}

func (b *browser) call(method string, params any) json.RawMessage {
	b.t.Helper()
	asJSON, err := json.Marshal(params)
	wardentest.NoError(b.t, err)
	b.seq++
	line, err := json.Marshal(message{ID: b.seq, Session: b.session, Method: method, Params: asJSON})
	wardentest.NoError(b.t, err)
	_, err = b.to.Write(append(line, 0))
	wardentest.NoError(b.t, err)
	for {
		if m := b.next(); m.ID == b.seq && m.Method == "" {
			if m.Error != nil {
				b.t.Fatalf("%s: %s", method, m.Error.Message)
			}
			return m.Result
		}
	}
}

// open makes a new page of a size in CSS pixels and loads a file. It returns
// how long that took, the first drawing included.
func (b *browser) open(path string, width, height int, before ...func()) time.Duration {
	b.t.Helper()
	if b.session != "" {
		b.quiet()
	}
	b.session = ""
	var target struct{ TargetID, SessionID string }
	b.decode(b.call("Target.createTarget", map[string]any{"url": "about:blank"}), &target)
	b.decode(b.call("Target.attachToTarget", map[string]any{"targetId": target.TargetID, "flatten": true}), &target)
	b.session = target.SessionID
	b.events, b.still = nil, false
	for _, domain := range []string{"Page", "Runtime", "Log", "Network"} {
		b.call(domain+".enable", struct{}{})
	}
	b.call("Emulation.setDeviceMetricsOverride", map[string]any{"width": width, "height": height, "deviceScaleFactor": 2, "mobile": width < 500})
	for _, f := range before {
		f()
	}
	begin := time.Now()
	b.call("Page.navigate", map[string]any{"url": "file://" + path})
	for len(b.seen("Page.loadEventFired")) == 0 {
		b.next()
	}
	b.drawn()
	return time.Since(begin)
}

func (b *browser) seen(method string) (list []message) {
	for _, m := range b.events {
		if m.Method == method {
			list = append(list, m)
		}
	}
	return list
}

func (b *browser) decode(raw json.RawMessage, into any) {
	b.t.Helper()
	if err := json.Unmarshal(raw, into); err != nil {
		b.t.Fatalf("%s: %v", raw, err)
	}
}

// eval returns the value of an expression in the page.
func (b *browser) eval(expression string) string {
	b.t.Helper()
	var r struct {
		Result           struct{ Value any }
		ExceptionDetails *struct{ Text string }
	}
	b.decode(b.call("Runtime.evaluate", map[string]any{"expression": expression, "awaitPromise": true, "returnByValue": true}), &r)
	if r.ExceptionDetails != nil {
		b.t.Fatalf("%s: %s", expression, r.ExceptionDetails.Text)
	}
	return fmt.Sprint(r.Result.Value)
}

// is wants an expression to have a value; format says what it is instead.
func (b *browser) is(format, expression, want string) {
	b.t.Helper()
	if got := b.eval(expression); got != want {
		b.t.Errorf(format, got)
	}
}

// show opens a page at the size of a desktop.
func (b *browser) show(page string) (path string) {
	b.t.Helper()
	path = filepath.Join(b.t.TempDir(), "report.html")
	wardentest.NoError(b.t, os.WriteFile(path, []byte(page), 0o644))
	b.open(path, 1280, 900)
	return path
}

// drawn waits until what was asked for is on the screen.
func (b *browser) drawn() {
	b.t.Helper()
	if b.still {
		return
	}
	b.eval("new Promise(r => requestAnimationFrame(() => requestAnimationFrame(() => r(1))))")
}

// withoutScripts is for [browser.open].
func (b *browser) withoutScripts() {
	b.still = true
	b.call("Emulation.setScriptExecutionDisabled", map[string]any{"value": true})
}

func (b *browser) mouse(kind string, x, y float64, more map[string]any) {
	b.t.Helper()
	p := map[string]any{"type": kind, "x": x, "y": y}
	for k, v := range more {
		p[k] = v
	}
	b.call("Input.dispatchMouseEvent", p)
	b.drawn()
}

func (b *browser) key(key string) {
	b.t.Helper()
	p := map[string]any{"type": "keyDown", "key": key, "code": key}
	if len(key) == 1 {
		p["text"] = key
	}
	b.call("Input.dispatchKeyEvent", p)
	p = map[string]any{"type": "keyUp", "key": key, "code": key}
	b.call("Input.dispatchKeyEvent", p)
	b.drawn()
}

// quiet wants the page that is left not to have said or done what it must not: errors,
// warnings of its policy, and requests for anything but itself.
func (b *browser) quiet() {
	b.t.Helper()
	b.drawn()
	for _, method := range []string{"Runtime.exceptionThrown", "Log.entryAdded", "Runtime.consoleAPICalled", "Page.javascriptDialogOpening"} {
		for _, m := range b.seen(method) {
			b.t.Errorf("the page: %s: %s", method, m.Params)
		}
	}
	files := 0
	for _, m := range b.seen("Network.requestWillBeSent") {
		var p struct{ Request struct{ URL string } }
		b.decode(m.Params, &p)
		switch {
		case strings.HasPrefix(p.Request.URL, "data:"):
		case strings.HasPrefix(p.Request.URL, "file:///") && files == 0:
			files++
		default:
			b.t.Errorf("the page requests %s", p.Request.URL)
		}
	}
}

// shownText is what a page shows but for its drawings.
const shownText = `(() => { const c = document.body.cloneNode(true); c.querySelectorAll('svg, script').forEach(e => e.replaceWith(' ')); c.querySelectorAll('*').forEach(e => e.append(' ')); return c.textContent })()`

// pageFileOf writes a page, and an SVG beside it.
func pageFileOf(t *testing.T, draw ...scenetest.DrawnRun) (string, *numbers) {
	t.Helper()
	var runs []*record.Run
	for _, d := range draw {
		runs = append(runs, d.Build())
	}
	rep := pageReport(runs...)
	rep.Slurm = &analysis.SlurmSays{Source: "sacct", State: "COMPLETED", ExitCode: "0:0", ReqMem: "4G", Steps: []analysis.StepSays{{ID: "4711.batch", State: "COMPLETED", ExitCode: "0:0", MaxRSS: 3 << 30}}}
	page, svg := writeBoth(t, rep)
	path := filepath.Join(t.TempDir(), "report.html")
	wardentest.NoError(t, os.WriteFile(path, []byte(page), 0o644))
	wardentest.NoError(t, os.WriteFile(strings.TrimSuffix(path, "html")+"svg", []byte(svg), 0o644))
	return path, numbersOf(t, page, rep)
}

func hourRun() scenetest.DrawnRun {
	return scenetest.DrawnRun{Node: "node7", Length: time.Hour, Every: time.Second, Workers: 8, Limit: 4 * rss.GiB, From: 0.4, To: 0.96}
}

// box is where the first chart is, in CSS pixels of the window.
func box(t *testing.T, b *browser) (x, y, w, h float64) {
	t.Helper()
	s := b.eval("(() => { document.querySelector('svg.live').scrollIntoView({block: 'center'}); const r = document.querySelector('svg.live').getBoundingClientRect(); return [r.x, r.y, r.width, r.height].join(' ') })()")
	if _, err := fmt.Sscan(s, &x, &y, &w, &h); err != nil {
		t.Fatalf("%q: %v", s, err)
	}
	return x, y, w, h
}

// domain is the view of the first chart in ms.
func domain(t *testing.T, b *browser) (from, to int) {
	t.Helper()
	b.drawn()
	s := b.eval("(() => { const s = document.querySelector('svg.live'); return s.dataset.from + ' ' + s.dataset.to })()")
	if _, err := fmt.Sscan(s, &from, &to); err != nil {
		t.Fatalf("%q: %v", s, err)
	}
	return from, to
}

// firstScreen names what a page must show before it is scrolled and does not.
const firstScreen = `['h1', '.facts', '#charts svg', '.next code', '.next button'].filter(q => { const r = document.querySelector(q)?.getBoundingClientRect(); return !r || r.top < 0 || r.bottom > innerHeight }).join(' ')`

// smallTargets names what can be pressed and is lower than 44 pixels.
const smallTargets = `[...document.querySelectorAll('button, select, summary')].filter(e => { const h = e.getBoundingClientRect().height; return h > 0 && h < 44 }).map(e => e.outerHTML).join(' ')`

// fits wants a page, with all of it open, not to scroll sideways, and no text to be cut.
func (b *browser) fits(width int) {
	b.t.Helper()
	b.eval("document.querySelectorAll('details').forEach(d => { d.open = true })")
	b.is("the page is wider than its window: %s", "document.documentElement.scrollWidth === "+strconv.Itoa(width)+" ? '' : document.documentElement.scrollWidth", "")
	b.is("beyond the edge: %s", "[...document.querySelectorAll('body *')].filter(e => { const r = e.getBoundingClientRect(); return r.width > 1 && r.right > innerWidth + 1 && !e.closest('svg') }).map(e => e.tagName + '.' + e.className).join(' ')", "")
	b.eval("document.querySelectorAll('details').forEach(d => { d.open = false })")
}

func TestPageInBrowser(t *testing.T) {
	b := startBrowser(t)
	path, numbers := pageFileOf(t, hourRun())
	b.open(path, 1280, 800)
	b.is("the first screen lacks %s", firstScreen, "")
	numbers.cover(t, b.eval(shownText))
	if n, _ := strconv.Atoi(b.eval("document.querySelectorAll('svg.live path.band').length")); n < 3 {
		t.Errorf("%d bands are drawn", n)
	}
	if n, _ := strconv.Atoi(b.eval("document.querySelector('svg.live path.used').getAttribute('d').length")); n < 2000 {
		t.Errorf("the used line has %d characters", n)
	}
	b.is("%s static charts are left", "document.querySelectorAll('.still').length", "0")

	x, y, w, h := box(t, b)
	b.mouse("mouseMoved", x+w*0.6, y+h/2, nil)
	tip := b.eval("document.querySelector('.tip').hidden ? '' : document.querySelector('.tip').textContent")
	for _, want := range []string{"used", "of 4.0 GiB", "trainer", "worker ×8", "after the start", "anon"} {
		if !strings.Contains(tip, want) {
			t.Errorf("the readout lacks %q: %q", want, tip)
		}
	}
	b.mouse("mouseMoved", x+w-11, y+h-30, nil)
	b.is("the lanes tell %q", "document.querySelector('.tip').textContent.includes('exited with status 0')", "true")

	b.mouse("mousePressed", x+w*0.5, y+h/2, map[string]any{"button": "left", "buttons": 1, "clickCount": 1})
	b.mouse("mouseMoved", x+w*0.6, y+h/2, map[string]any{"button": "left", "buttons": 1})
	b.mouse("mouseReleased", x+w*0.6, y+h/2, map[string]any{"button": "left", "clickCount": 1})
	from, to := domain(t, b)
	if from < 25*60e3 || to > 40*60e3 || to-from > 8*60e3 {
		t.Errorf("dragging shows %d to %d ms", from, to)
	}
	b.mouse("mouseWheel", x+w*0.5, y+h/2, map[string]any{"deltaX": 0, "deltaY": -240})
	if a, z := domain(t, b); z-a >= to-from {
		t.Errorf("the wheel shows %d to %d ms", a, z)
	}
	b.key("0")
	if a, z := domain(t, b); a != 0 || z != 3600e3 {
		t.Errorf("key 0 shows %d to %d ms", a, z)
	}
	b.key("+")
	if a, z := domain(t, b); z-a != 1800e3 {
		t.Errorf("key + shows %d to %d ms", a, z)
	}
	b.key("ArrowRight")
	b.key("n")
	if said := b.eval("document.getElementById('spoken').textContent"); !strings.Contains(said, "90%:recycle") {
		t.Errorf("key n says %q", said)
	}
	b.eval("document.getElementById('whole').click()")
	b.eval("document.getElementById('end').click()")
	if a, z := domain(t, b); z-a != 300e3 || z != 3600e3 {
		t.Errorf("last 5 min shows %d to %d ms", a, z)
	}
	b.eval("document.getElementById('whole').click(), document.querySelector('td[data-proc] button').click()")
	b.drawn()
	b.is("%s lines of the process", "document.querySelectorAll('svg.live path.proc').length", "1")
	b.eval("document.querySelectorAll('#processes')[0].parentElement.querySelectorAll('th[data-sort=n] button')[0].click()")
	pids := b.eval("[...document.querySelectorAll('td[data-proc]')].map(c => c.nextElementSibling.textContent).join(' ')")
	if !strings.HasPrefix(pids, "61") || !strings.HasSuffix(pids, " 4001 4000") {
		t.Errorf("sorted by PID: %s", pids)
	}
	b.eval("document.querySelector('td[data-t] button').click()")
	if a, z := domain(t, b); z-a != 240e3 {
		t.Errorf("a click on an event shows %d to %d ms", a, z)
	}
}

func TestPageDarkAndPhone(t *testing.T) {
	b := startBrowser(t)
	path, numbers := pageFileOf(t, hourRun())
	dark := func() {
		b.call("Emulation.setEmulatedMedia", map[string]any{"features": []map[string]string{{"name": "prefers-color-scheme", "value": "dark"}}})
	}
	b.open(path, 1280, 800, dark)
	background := "getComputedStyle(document.body).backgroundColor"
	b.is("dark is %s", background, "rgb(17, 21, 27)")
	b.eval("document.getElementById('theme').click(), document.getElementById('theme').click()")
	b.is("light by its button is %s", background, "rgb(246, 247, 249)")

	touch := func() {
		b.call("Emulation.setTouchEmulationEnabled", map[string]any{"enabled": true, "maxTouchPoints": 2})
	}
	b.open(path, 390, 844, touch)
	b.fits(390)
	numbers.cover(t, b.eval(shownText))
	b.is("the first screen lacks %s", firstScreen, "")
	b.is("targets are small: %s", smallTargets, "")
	b.is("the chart is %s pixels high", "document.querySelector('svg.live').getBoundingClientRect().height", "220")
	x, y, w, h := box(t, b)
	b.call("Input.dispatchTouchEvent", map[string]any{"type": "touchStart", "touchPoints": []map[string]float64{{"x": x + w*0.7, "y": y + h/2}}})
	b.call("Input.dispatchTouchEvent", map[string]any{"type": "touchEnd", "touchPoints": []any{}})
	b.drawn()
	if tip := b.eval("document.querySelector('.tip').hidden ? '' : document.querySelector('.tip').textContent"); !strings.Contains(tip, "of 4.0 GiB") {
		t.Errorf("touch reads out %q", tip)
	}
	if s := b.eval("(() => { const t = document.querySelector('.tip'); return t.scrollWidth <= t.clientWidth })()"); s != "true" {
		t.Error("the readout is wider than its box")
	}
	point := func(id int, at float64) map[string]float64 {
		return map[string]float64{"id": float64(id), "x": x + w*at, "y": y + h/2}
	}
	b.call("Input.dispatchTouchEvent", map[string]any{"type": "touchStart", "touchPoints": []any{point(1, 0.45)}})
	b.call("Input.dispatchTouchEvent", map[string]any{"type": "touchStart", "touchPoints": []any{point(1, 0.45), point(2, 0.65)}})
	for i := range 5 {
		d := 0.05 * float64(i)
		b.call("Input.dispatchTouchEvent", map[string]any{"type": "touchMove", "touchPoints": []any{point(1, 0.45-d), point(2, 0.65+d)}})
	}
	b.call("Input.dispatchTouchEvent", map[string]any{"type": "touchEnd", "touchPoints": []any{}})
	if from, to := domain(t, b); to-from > 2400e3 {
		t.Errorf("pinching shows %d to %d ms", from, to)
	}
}

func TestPageWithoutScripts(t *testing.T) {
	b := startBrowser(t)
	path, _ := pageFileOf(t, hourRun())
	b.open(path, 1280, 800, b.withoutScripts)
	var doc struct{ Root struct{ NodeID int } }
	b.decode(b.call("DOM.getDocument", struct{}{}), &doc)
	var html struct{ OuterHTML string }
	b.decode(b.call("DOM.getOuterHTML", map[string]any{"nodeId": doc.Root.NodeID}), &html)
	for _, want := range []string{"finished, kept under the limit", `class="used"`, "#SBATCH --mem=4G", "pt_data_worker"} {
		if !strings.Contains(html.OuterHTML, want) {
			t.Errorf("without scripts the page lacks %q", want)
		}
	}
	b.open(strings.TrimSuffix(path, "html")+"svg", 960, 420)
}

// TestPageInPrint: it is white, whatever the theme, and all of it is open.
func TestPageInPrint(t *testing.T) {
	b := startBrowser(t)
	path, _ := pageFileOf(t, hourRun())
	b.open(path, 800, 1100)
	b.eval("document.documentElement.setAttribute('data-theme', 'dark')")
	b.call("Emulation.setEmulatedMedia", map[string]any{"media": "print", "features": []map[string]string{{"name": "prefers-color-scheme", "value": "dark"}}})
	b.drawn()
	b.is("a card is %s", "getComputedStyle(document.querySelector('.card')).backgroundColor", "rgb(255, 255, 255)")
	b.eval("dispatchEvent(new Event('beforeprint'))")
	b.is("%s are closed", "document.querySelectorAll('details:not([open])').length", "0")
	b.eval("dispatchEvent(new Event('afterprint'))")
	b.is("%s are open afterwards", "document.querySelectorAll('details[open]').length", "0")
}

// TestPageOfFindings: what was found has its place and its mark, on a phone, in the
// dark and without scripts too.
func TestPageOfFindings(t *testing.T) {
	b := startBrowser(t)
	s := scenetest.GrownScene()
	s.Events = append([]record.Entry{scenetest.Spawned(20 * time.Second)}, s.Events...)
	r := s.Run()
	page, _ := writeBoth(t, pageReport(r))
	path := b.show(page)
	b.is("%s marks of 6 findings", "document.querySelectorAll('svg.live .mark.finding').length", "6")
	b.open(path, 390, 844, func() {
		b.call("Emulation.setEmulatedMedia", map[string]any{"features": []map[string]string{{"name": "prefers-color-scheme", "value": "dark"}}})
	})
	b.fits(390)
	b.open(path, 1280, 800, b.withoutScripts)
}

func TestPageOfRanks(t *testing.T) {
	b := startBrowser(t)
	var ranks []scenetest.DrawnRun
	for i := range 3 {
		ranks = append(ranks, scenetest.DrawnRun{Node: fmt.Sprint("node", 7+i/2), Task: i, After: time.Duration(i) * 20 * time.Second, Length: 20 * time.Minute,
			Every: time.Second, Workers: 4, Limit: 2 * rss.GiB, From: 0.3, To: 0.8 + 0.1*float64(i), Oom: i == 2})
	}
	path, _ := pageFileOf(t, ranks...)
	b.open(path, 1280, 800)
	b.is("%s charts of 3 ranks", "document.querySelectorAll('svg.live').length", "3")
	b.eval("(() => { const s = document.getElementById('run'); s.value = '2'; s.dispatchEvent(new Event('change')) })()")
	b.drawn()
	b.is("charts and OOM marks of the rank that died: %s", "document.querySelectorAll('svg.live').length + ' ' + document.querySelectorAll('svg.live .mark.oom').length", "1 1")
	b.eval("document.getElementById('end').click()")
	b.drawn()
	x, y, w, h := box(t, b)
	b.mouse("mouseMoved", x+w-11, y+h/2, nil)
}

func TestPageInBrowserTakesHostileNames(t *testing.T) {
	b, runs := startBrowser(t), []*record.Run{scenetest.GrownScene().Run()}
	recordtest.Poison(hostile, func(kind string) {
		if kind != "" {
			return
		}
		page, _ := writeBoth(t, pageReport(runs...))
		b.show(page)
		x, y, w, h := box(t, b)
		b.mouse("mouseMoved", x+80, y+h/2, nil)
		b.mouse("mouseMoved", x+w/2, y+h/2, nil)
		b.is("scripts and images: %s", "document.scripts.length + ' ' + document.images.length", "3 0")
	}, recordtest.Runs(runs)...)
}

// TestPageOfADayLoads prints what it measured: the goal is 2 s on a quiet machine.
func TestPageOfADayLoads(t *testing.T) {
	b := startBrowser(t)
	path, _ := pageFileOf(t, scenetest.DayRun())
	took := b.open(path, 1280, 800)
	info, err := os.Stat(path)
	wardentest.NoError(t, err)
	redraw := b.eval("(async () => { const t = performance.now(); document.getElementById('in').click(); await new Promise(r => requestAnimationFrame(() => requestAnimationFrame(r))); return Math.round(performance.now() - t) })()")
	t.Logf("24 h at 1 s, 16 processes: %.2f MiB, loaded in %v, one zoom redrawn in %s ms", float64(info.Size())/(1<<20), took.Round(time.Millisecond), redraw)
	b.eval("document.getElementById('whole').click()")
	b.drawn()
}

// TestPageOfNodes: a node has one chart though two ranks recorded it in turn, on one
// axis of time with the others; the table of nodes can be sorted, and fits a phone.
func TestPageOfNodes(t *testing.T) {
	b := startBrowser(t)
	runs := scenetest.LeadMoved()
	page, _ := writeBoth(t, pageReport(runs...))
	path := b.show(page)
	b.is("charts of %q", "[...document.querySelectorAll('figure.chart h3')].map(h => h.textContent).join(' ')", "n1 n2")
	b.is("views %q", "[...document.querySelectorAll('svg.live')].map(s => s.dataset.from + '-' + s.dataset.to).join(' ')", "0-600000 0-600000")
	b.is("%s marks of the change of lead", "document.querySelectorAll('svg.live .mark.rank').length", "1")
	nodes := "[...document.getElementById('nodes').parentElement.querySelectorAll('tbody tr')].map(r => r.cells[0].textContent).join(' ')"
	b.is("nodes %q, not the nearest first", nodes, "n2 n1")
	b.eval("[...document.getElementById('nodes').parentElement.querySelectorAll('th button')].find(h => h.textContent === 'Headroom').click()")
	b.is("by headroom %q", nodes, "n1 n2")
	b.open(path, 390, 844)
	b.fits(390)
}
