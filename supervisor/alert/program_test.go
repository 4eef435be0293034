package alert

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rsswarden/rsswarden/supervisor/wardentest"
)

// TestMain is also the program that carries requests: the URL says how it behaves.
func TestMain(m *testing.M) {
	if len(os.Args) == 2 && os.Args[1] == SendCommand {
		carry()
		return
	}
	os.Exit(m.Run())
}

func carry() {
	var r Request
	data, err := io.ReadAll(os.Stdin)
	if err == nil {
		err = json.Unmarshal(data, &r)
	}
	how, file, _ := strings.Cut(r.URL, " ")
	if file != "" { // it says who it is, and then what it met
		fds, _ := os.ReadDir("/proc/self/fd")
		names := ""
		for _, fd := range fds {
			to, err := os.Readlink("/proc/self/fd/" + fd.Name())
			if err == nil && !strings.HasPrefix(to, "anon_inode:") {
				names += fd.Name() + "=" + to + "\n"
			}
		}
		cmdline, _ := os.ReadFile("/proc/self/cmdline")
		sid, _, _ := syscall.Syscall(syscall.SYS_GETSID, 0, 0, 0)
		text := fmt.Sprintf("%d\n%q\n%v\n%s%s", os.Getpid(), cmdline, int(sid) == os.Getpid(), names, strings.Join(os.Environ(), "\n"))
		if os.WriteFile(file+".new", []byte(text), 0o600) != nil || os.Rename(file+".new", file) != nil {
			os.Exit(3)
		}
	}
	switch how {
	case "hang":
		time.Sleep(time.Hour)
	case "die":
		os.Exit(1)
	case "garbage":
		fmt.Println("\x00{{{")
	case "flood":
		for range 1 << 12 {
			fmt.Println(strings.Repeat("x", 1024))
		}
	default:
		_ = json.NewEncoder(os.Stdout).Encode(Answer{Taken: len(r.Bodies), Status: 200})
	}
	if err != nil {
		os.Exit(2)
	}
}

func program(t *testing.T) *Program {
	t.Helper()
	self, err := os.Executable()
	wardentest.NoError(t, err)
	return &Program{Path: self, Env: []string{"A=1"}, Start: (*exec.Cmd).Start}
}

func request(url string, patience time.Duration) Request {
	return Request{URL: url, Token: "s3cret", Bodies: []json.RawMessage{[]byte(`{"x":1}`)}, Timeout: patience}
}

// TestProgram: what comes of a process that carries a request, well or not.
func TestProgram(t *testing.T) {
	p := program(t)
	for how, want := range map[string]Answer{
		"well":    {Taken: 1, Status: 200},
		"die":     {Error: "rsswardend ended without an answer", Retry: true},
		"garbage": {Error: "rsswardend ended without an answer", Retry: true},
		"flood":   {Error: "rsswardend ended without an answer", Retry: true},
	} {
		if got := p.Send(t.Context(), request(how, 30*time.Second)); got != want {
			t.Errorf("%s: %+v", how, got)
		}
	}
	p.Path = filepath.Join(t.TempDir(), "gone")
	if got := p.Send(t.Context(), request("well", time.Second)); !strings.HasPrefix(got.Error, "cannot start ") || !got.Retry {
		t.Errorf("without the program: %+v", got)
	}
	big := request("well", time.Second)
	big.Bodies[0] = []byte(`"` + strings.Repeat("x", MostRequest) + `"`)
	if got := p.Send(t.Context(), big); !strings.Contains(got.Error, "cannot write the request") {
		t.Errorf("too much: %+v", got)
	}
}

// met waits for what the program has written and reads its PID from it.
func met(t *testing.T, file string) (pid int, text string) {
	t.Helper()
	wardentest.Until(t, "written: "+file, func() bool { return wardentest.Read(file) != "" })
	line, rest, _ := strings.Cut(wardentest.Read(file), "\n")
	pid, err := strconv.Atoi(line)
	wardentest.NoError(t, err)
	return pid, rest
}

func gone(t *testing.T, pid int) {
	t.Helper()
	wardentest.Until(t, "the end of the process", func() bool { return syscall.Kill(pid, 0) != nil })
}

// TestProgramIsKilled: one that hangs has its time, or until we end, and leaves
// nothing behind.
func TestProgramIsKilled(t *testing.T) {
	p := program(t)
	file := filepath.Join(t.TempDir(), "met")
	if got := p.Send(t.Context(), request("hang "+file, 100*time.Millisecond)); got.Error != "no answer in time" || !got.Retry {
		t.Errorf("%+v", got)
	}
	pid, _ := met(t, file)
	gone(t, pid)
	ctx, cancel := context.WithCancel(t.Context())
	other := file + "2"
	done := make(chan Answer, 1)
	go func() { done <- p.Send(ctx, request("hang "+other, time.Hour)) }()
	pid, _ = met(t, other)
	cancel()
	<-done
	gone(t, pid)
}

// TestProgramInherits: no file of ours, and the environment that it is given; no secret is in
// its command line or environment, and no signal to our process group meets it.
func TestProgramInherits(t *testing.T) {
	open, err := os.Open("/etc/passwd")
	wardentest.NoError(t, err)
	defer open.Close()
	file := filepath.Join(t.TempDir(), "met")
	if got := program(t).Send(t.Context(), request("well "+file, time.Minute)); got.Error != "" {
		t.Fatalf("%+v", got)
	}
	_, text := met(t, file)
	if strings.Contains(text, "s3cret") || strings.Contains(text, "passwd") || !strings.Contains(text, "\nA=1") || !strings.Contains(text, `send\x00"`) {
		t.Errorf("it met\n%s", text)
	}
	if lines := strings.Split(text, "\n"); lines[1] != "true" {
		t.Error("it is in our session")
	}
}

// TestLeave: a process that may outlive us reports its result while there is a reader.
func TestLeave(t *testing.T) {
	p := program(t)
	if got := <-p.Leave(request("well", time.Minute)); got.Taken != 1 {
		t.Errorf("%+v", got)
	}
	p.Path = "/nonexistent"
	if got := <-p.Leave(request("well", time.Minute)); got.Error == "" {
		t.Errorf("%+v", got)
	}
}

// TestSenderInherits: what was left open is resolved in its time, and what still fires is
// sent once more.
func TestSenderInherits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNetwork()
		first, next := n.sender(well), n.sender(well)
		first.Set([]Alert{at("80%", 91), at("90%", 91)})
		time.Sleep(time.Second)
		first.Set([]Alert{at("80%", 85)})
		first.Close(false)
		open := first.Open()
		if len(open) != 2 {
			t.Fatalf("%d are open", len(open))
		}
		next.Inherit(open)
		next.Set([]Alert{at("80%", 85)})
		time.Sleep(time.Second)
		again := n.requests(well)[1:]
		if len(again) != 1 || len(again[0].Bodies) != 1 || !strings.Contains(string(again[0].Bodies[0]), `"rung":"80%"`) {
			t.Errorf("told again: %s", again)
		}
		time.Sleep(keepFiring)
		rest := n.requests(well)[2:]
		if len(rest) != 1 || len(rest[0].Bodies) != 1 || !strings.Contains(string(rest[0].Bodies[0]), `"status":"resolved"`) || !strings.Contains(string(rest[0].Bodies[0]), `"rung":"90%"`) {
			t.Errorf("told then: %s", rest)
		}
		if open := next.Open(); len(open) != 1 || open[0].Rung != "80%" {
			t.Errorf("%d are open", len(open))
		}
		next.Close(false)
		synctest.Wait()
	})
}

// TestSenderUntoldIsOpen: alerts whose end was not delivered are left to the next leader.
func TestSenderUntoldIsOpen(t *testing.T) {
	sending(t, []string{well, down}, func(t *testing.T, n *network, s *Sender) {
		s.Set([]Alert{at("80%", 81)})
		time.Sleep(time.Second)
		s.Set(nil)
		time.Sleep(keepFiring + time.Minute)
		if open := s.Open(); len(open) != 1 {
			t.Errorf("%d are open", len(open))
		}
	})
}
