package render

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

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
