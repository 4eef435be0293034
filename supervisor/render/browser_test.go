package render

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rsswarden/rsswarden/supervisor/wardentest"
)

// browser is a headless Chromium that is talked to through its descriptors 3
// and 4: one JSON message after the other, each ended by NUL.
type browser struct {
	t       *testing.T
	to      io.Writer
	session string

	mu      sync.Mutex
	seq     int
	waiting map[int]chan message
	events  []message
	gone    chan struct{}
}

type message struct {
	ID     int             `json:"id"`
	Method string          `json:"method"`
	Params json.RawMessage `json:"params"`
	Result json.RawMessage `json:"result"`
	Error  *struct {
		Message string `json:"message"`
	} `json:"error"`
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
	b := &browser{t: t, to: toIt, waiting: map[int]chan message{}, gone: make(chan struct{})}
	go b.read(fromIt)
	t.Cleanup(func() {
		b.session = ""
		b.try("Browser.close", nil)
		select {
		case <-b.gone:
		case <-time.After(10 * time.Second):
			cmd.Process.Kill()
		}
		cmd.Wait()
		toIt.Close()
		fromIt.Close()
		if t.Failed() && said.Len() < 4000 {
			t.Logf("chromium said: %s", said.String())
		}
	})
	return b
}

func (b *browser) read(r io.Reader) {
	defer close(b.gone)
	in := bufio.NewReaderSize(r, 1<<20)
	for {
		line, err := in.ReadBytes(0)
		if err != nil {
			return
		}
		var m message
		if json.Unmarshal(line[:len(line)-1], &m) != nil {
			continue
		}
		b.mu.Lock()
		if ch := b.waiting[m.ID]; m.ID != 0 && ch != nil {
			delete(b.waiting, m.ID)
			ch <- m
		} else if m.Method != "" {
			b.events = append(b.events, m)
		}
		b.mu.Unlock()
	}
}

func (b *browser) try(method string, params any) (json.RawMessage, error) {
	b.mu.Lock()
	b.seq++
	id, ch := b.seq, make(chan message, 1)
	b.waiting[id] = ch
	b.mu.Unlock()
	if params == nil {
		params = struct{}{}
	}
	line, err := json.Marshal(map[string]any{"id": id, "method": method, "params": params})
	if err != nil {
		return nil, err
	}
	if b.session != "" {
		line = append(line[:len(line)-1], fmt.Sprintf(`,"sessionId":%q}`, b.session)...)
	}
	if _, err := b.to.Write(append(line, 0)); err != nil {
		return nil, err
	}
	select {
	case m := <-ch:
		if m.Error != nil {
			return nil, fmt.Errorf("%s: %s", method, m.Error.Message)
		}
		return m.Result, nil
	case <-b.gone:
		return nil, fmt.Errorf("%s: chromium has ended", method)
	case <-time.After(60 * time.Second):
		return nil, fmt.Errorf("%s: no answer", method)
	}
}

func (b *browser) call(method string, params any) json.RawMessage {
	b.t.Helper()
	r, err := b.try(method, params)
	if err != nil {
		b.t.Fatal(err)
	}
	return r
}

// open makes a new page of a size in CSS pixels and loads a file. It returns
// how long that took, the first drawing included.
func (b *browser) open(path string, width, height int, before ...func()) time.Duration {
	b.t.Helper()
	b.session = ""
	var target struct{ TargetID, SessionID string }
	b.decode(b.call("Target.createTarget", map[string]any{"url": "about:blank"}), &target)
	b.decode(b.call("Target.attachToTarget", map[string]any{"targetId": target.TargetID, "flatten": true}), &target)
	b.session = target.SessionID
	b.mu.Lock()
	b.events = nil
	b.mu.Unlock()
	for _, domain := range []string{"Page", "Runtime", "Log", "Network"} {
		b.call(domain+".enable", nil)
	}
	b.call("Emulation.setDeviceMetricsOverride", map[string]any{"width": width, "height": height, "deviceScaleFactor": 2, "mobile": width < 500})
	for _, f := range before {
		f()
	}
	begin := time.Now()
	b.call("Page.navigate", map[string]any{"url": "file://" + path})
	b.wait("Page.loadEventFired")
	return time.Since(begin)
}

// wait waits for an event.
func (b *browser) wait(method string) {
	b.t.Helper()
	for range 6000 {
		if len(b.seen(method)) > 0 {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	b.t.Fatalf("%s did not come", method)
}

func (b *browser) seen(method string) (list []message) {
	b.mu.Lock()
	defer b.mu.Unlock()
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

// show opens a page at the size of a desktop and takes a picture of it.
func (b *browser) show(page, name string) (path string) {
	b.t.Helper()
	path = filepath.Join(b.t.TempDir(), "report.html")
	wardentest.NoError(b.t, os.WriteFile(path, []byte(page), 0o644))
	b.open(path, 1280, 900)
	b.drawn()
	b.shot(name, true)
	return path
}

// drawn waits until what was asked for is on the screen.
func (b *browser) drawn() {
	b.t.Helper()
	b.eval("new Promise(r => requestAnimationFrame(() => requestAnimationFrame(() => r(1))))")
}

func (b *browser) mouse(kind string, x, y float64, more map[string]any) {
	b.t.Helper()
	p := map[string]any{"type": kind, "x": x, "y": y}
	for k, v := range more {
		p[k] = v
	}
	b.call("Input.dispatchMouseEvent", p)
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
}

// shot keeps a picture of the page in the directory RSSWARDEN_SHOTS, for people
// to look at; without that variable it only takes one.
func (b *browser) shot(name string, whole bool) {
	b.t.Helper()
	var r struct{ Data []byte }
	b.decode(b.call("Page.captureScreenshot", map[string]any{"format": "png", "captureBeyondViewport": whole}), &r)
	dir := os.Getenv("RSSWARDEN_SHOTS")
	if dir == "" {
		dir = b.t.TempDir()
	}
	if err := os.WriteFile(dir+"/"+name+".png", r.Data, 0o644); err != nil {
		b.t.Error(err)
	}
}

// complaints are what a page must not say or do: errors, warnings of its policy,
// and requests for anything but itself.
func (b *browser) complaints() (list []string) {
	for _, method := range []string{"Runtime.exceptionThrown", "Log.entryAdded", "Runtime.consoleAPICalled", "Page.javascriptDialogOpening"} {
		for _, m := range b.seen(method) {
			list = append(list, method+": "+string(m.Params))
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
			list = append(list, "request: "+p.Request.URL)
		}
	}
	return list
}
