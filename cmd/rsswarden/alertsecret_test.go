package main_test

import (
	"bytes"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// children are the processes below one, by what /proc says.
func children(t *testing.T, pid int) (all []int) {
	t.Helper()
	tasks, _ := filepath.Glob("/proc/" + strconv.Itoa(pid) + "/task/*/children")
	for _, f := range tasks {
		b, _ := os.ReadFile(f)
		for _, word := range strings.Fields(string(b)) {
			n, err := strconv.Atoi(word)
			if err != nil {
				t.Fatal(err)
			}
			all = append(append(all, n), children(t, n)...)
		}
	}
	return all
}

// TestAlertSecrets: what is secret goes to the receiver and is nowhere else: in no
// command line, environment of the process that carries it, line, event, record or
// status. That process is none of the job's and has none of its files.
func TestAlertSecrets(t *testing.T) {
	secrets := []string{"s3cret-name", "s3cret-word", "s3cret-query", "s3cret-path", "s3cret-token"}
	met, release := make(chan *http.Request, 8), make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		met <- req
		<-release
		user, word, _ := req.BasicAuth()
		http.Error(w, strings.Join([]string{"no", user, word, req.URL.String(), req.Header.Get("Authorization")}, " "), 500)
	}))
	defer server.Close()
	host := strings.TrimPrefix(server.URL, "http://")
	third, err := os.Create(filepath.Join(t.TempDir(), "third"))
	if err != nil {
		t.Fatal(err)
	}
	defer third.Close()
	r := startAlertRunTo(t, third, []string{
		"RSSWARDEN_ALERT=webhook+http://s3cret-name:s3cret-word@" + host + "/hook?key=s3cret-query\nhttp://" + host + "/s3cret-path token=s3cret-token",
		"RSSWARDEN_ALERT_TOKEN=s3cret-token",
	}, "--at", "none", "--at", "user 80%:warn")
	r.hold(160)
	req := <-met
	if got := req.Header.Get("Authorization"); got != "Bearer s3cret-token" && !strings.HasPrefix(got, "Basic ") {
		t.Errorf("it got %q", got)
	}
	var status bytes.Buffer
	soon(t, "told of by status", func() bool {
		st := r.standing()
		return st != nil && len(st.Alerts) == 2
	})
	st := r.standing()
	carrier := 0
	for _, pid := range children(t, st.Leader) {
		if comm, _ := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/comm"); string(comm) == "rsswardend\n" {
			carrier = pid
		}
	}
	if carrier == 0 {
		t.Fatal("nobody carries it")
	}
	for _, p := range st.Procs {
		if p.PID == carrier {
			t.Error("it counts as the job's")
		}
	}
	files, _ := filepath.Glob("/proc/" + strconv.Itoa(carrier) + "/fd/*")
	for _, f := range files {
		if to, _ := os.Readlink(f); strings.HasPrefix(to, r.dir) || to == third.Name() || filepath.Base(f) != "0" && strings.Contains(to, "memfd") {
			t.Errorf("it has %s open", to)
		}
	}
	found := func(what string, text []byte) {
		t.Helper()
		for _, secret := range secrets {
			if bytes.Contains(text, []byte(secret)) {
				t.Errorf("%s has %s", what, secret)
			}
		}
	}
	for _, pid := range append(children(t, r.cmd.Process.Pid), r.cmd.Process.Pid) {
		line, _ := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/cmdline")
		found("a command line", line)
	}
	environ, _ := os.ReadFile("/proc/" + strconv.Itoa(carrier) + "/environ")
	found("its environment", environ)
	close(release)
	soon(t, "refused by both", func() bool {
		st := r.standing()
		return st != nil && len(st.Alerts) == 2 && st.Alerts[0].Failed > 0 && st.Alerts[1].Failed > 0
	})
	for _, args := range [][]string{{"status"}, {"status", "--json"}, {"top", "--once"}, {"run", "--help"}} {
		cmd := exec.Command(binary, args...)
		cmd.Env = append(os.Environ(), slices.Concat([]string{"RSSWARDEN_RUNTIME=" + r.dir}, r.cmd.Env[len(r.cmd.Env)-2:])...)
		cmd.Stdout, cmd.Stderr = &status, &status
		if err := cmd.Run(); err != nil {
			t.Logf("%q: %v", args, err)
		}
	}
	found("status", status.Bytes())
	if !strings.Contains(status.String(), "alerts to webhook+http://"+host+"/…: 1 firing, 0 sent") {
		t.Errorf("status says\n%s", status.String())
	}
	r.end()
	if b, err := os.ReadFile(third.Name()); err != nil || !bytes.Contains(b, []byte(`"event":"exit"`)) {
		t.Errorf("the events: %s, %v", b, err)
	} else {
		found("the events", b)
	}
	found("stderr", r.stderr.Bytes())
	n := 0
	err = filepath.WalkDir(r.dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		b, err := os.ReadFile(path)
		found(path, b)
		n++
		return err
	})
	if err != nil || n < 1 {
		t.Errorf("%d files, %v", n, err)
	}
}

// TestAlertUsage: what is wrong is said before anything is started, and repeats no
// secret.
func TestAlertUsage(t *testing.T) {
	lonely := filepath.Join(t.TempDir(), "rsswarden")
	b, err := os.ReadFile(binary)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(lonely, b, 0o755); err != nil {
		t.Fatal(err)
	}
	config := filepath.Join(t.TempDir(), "job.toml")
	for name, test := range map[string]struct {
		program string
		env     []string
		file    string
		args    []string
		says    string
	}{
		"a password on the command line": {binary, nil, "", []string{"--alert", "http://me:s3cret@h:9093"}, "put it into the variable RSSWARDEN_ALERT"},
		"a query on the command line":    {binary, nil, "", []string{"--alert", "http://h/x?token=s3cret"}, "everybody on this node can read a command line"},
		"a token on the command line":    {binary, nil, "", []string{"--alert", "https://h/x token=s3cret"}, "everybody on this node can read a command line"},
		"a token beside a user":          {binary, []string{"RSSWARDEN_ALERT=https://me:s3cret@h token=s3cret"}, "", nil, "has a token beside a user"},
		"no URL":                         {binary, nil, "", []string{"--alert", "s3cret:9093"}, "--alert: its value is no http:// or https:// URL"},
		"the second is no URL":           {binary, nil, "", []string{"--alert", "http://h:9093", "--alert", "s3cret:9093", "--alert", "http://i"}, "--alert: value 2 of 3 is no http:// or https:// URL"},
		"the second URL has two":         {binary, []string{"RSSWARDEN_ALERT=http://h:9093\n\nhttps://me:s3cret@h token=s3cret"}, "", nil, "RSSWARDEN_ALERT: value 2 of 2 has a token beside a user"},
		"which has a password":           {binary, nil, "", []string{"--alert", "http://h:9093", "--alert", "http://me:s3cret@i/x"}, "the URL of --alert for webhook+http://i/… has a user"},
		"no URL in the environment":      {binary, []string{"RSSWARDEN_ALERT=ftp://s3cret"}, "", nil, "RSSWARDEN_ALERT: its value is no http:// or https:// URL"},
		"no URL in a file":               {binary, nil, "alert = \"s3cret\"\n", nil, "job.toml:1:1: alert: its value is no http"},
		"a file that cannot be read":     {binary, nil, "alert = [\"http://me:s3cret@h\", \n", nil, "job.toml:"},
		"without who carries it":         {lonely, []string{"PATH=/nonexistent"}, "", []string{"--alert", "http://h:9093"}, "the program rsswardend, which carries alerts, is neither beside rsswarden nor in PATH"},
	} {
		t.Run(name, func(t *testing.T) {
			args := append([]string{"run"}, test.args...)
			if test.file != "" {
				if err := os.WriteFile(config, []byte(test.file), 0o600); err != nil {
					t.Fatal(err)
				}
				args = append(args, "--config", config)
			}
			cmd := exec.Command(test.program, append(args, "--", "/bin/echo", "started")...)
			cmd.Env = append(os.Environ(), test.env...)
			var out, errs bytes.Buffer
			cmd.Stdout, cmd.Stderr = &out, &errs
			_ = cmd.Run()
			if st := cmd.ProcessState.ExitCode(); st != 2 || out.Len() > 0 || !strings.Contains(errs.String(), test.says) || strings.Contains(errs.String(), "s3cret") {
				t.Errorf("exit status %d, stdout %q\n%s", st, out.String(), errs.String())
			}
		})
	}
}

// TestAlertWarnings: what is not as it should be with a secret is said at the start, once,
// and the command runs.
func TestAlertWarnings(t *testing.T) {
	dir := t.TempDir()
	token := filepath.Join(dir, "token")
	if err := os.WriteFile(token, []byte("s3cret\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	gone, empty := filepath.Join(dir, "gone"), os.DevNull
	const key = "the path of a webhook is often its key; put the URL into RSSWARDEN_ALERT, one a line"
	for name, test := range map[string]struct {
		env  []string
		args []string
		says string // "" for nothing
	}{
		"a webhook on the command line":      {nil, []string{"--alert", "https://hooks.example/T0/s3cret"}, key},
		"two":                                {nil, []string{"--alert", "https://hooks.example/T0/s3cret", "--alert", "https://hooks.example/T1/s3cret"}, key},
		"a webhook in the environment":       {[]string{"RSSWARDEN_ALERT=https://hooks.example/T0/s3cret"}, nil, ""},
		"an Alertmanager":                    {nil, []string{"--alert", "http://am:9093"}, ""},
		"a token":                            {nil, []string{"--alert", "https://am:9093", "--alert-token-file", token}, ""},
		"a token that is not there":          {nil, []string{"--alert", "https://am:9093", "--alert-token-file", gone}, "cannot read the token: open " + gone + ": no such file or directory; nobody is told before"},
		"a token that is empty":              {nil, []string{"--alert", "https://am:9093", "--alert-token-file", empty}, "/dev/null is empty"},
		"a token of its own, not there":      {[]string{"RSSWARDEN_ALERT=https://am:9093 token-file=" + gone}, nil, "cannot read the token"},
		"a token in plain":                   {[]string{"RSSWARDEN_ALERT_TOKEN=s3cret"}, []string{"--alert", "http://am:9093"}, "goes there in plain"},
		"a token in plain, to ourselves":     {[]string{"RSSWARDEN_ALERT_TOKEN=s3cret"}, []string{"--alert", "http://127.0.0.1:9093"}, ""},
		"a password in plain":                {[]string{"RSSWARDEN_ALERT=http://me:s3cret@am:9093"}, nil, "what alertmanager+http://am:9093 is to know us by goes there in plain"},
		"a token that no receiver is to get": {[]string{"RSSWARDEN_ALERT=https://hooks.example/T0/s3cret", "RSSWARDEN_ALERT_TOKEN=s3cret"}, nil, "the token for alerts goes to no receiver"},
	} {
		t.Run(name, func(t *testing.T) {
			cmd := exec.Command(binary, slices.Concat([]string{"run", "--record", "none"}, test.args, []string{"--", "true"})...)
			cmd.Env = append(withoutSlurm(), test.env...)
			out, err := cmd.CombinedOutput()
			warned := 0
			for line := range strings.Lines(string(out)) {
				if strings.Contains(line, "alert") && !strings.Contains(line, "watching") {
					warned++
				}
			}
			if err != nil || strings.Contains(string(out), "s3cret") || warned != min(len(test.says), 1) || !strings.Contains(string(out), test.says) {
				t.Errorf("%v, %d lines\n%s", err, warned, out)
			}
		})
	}
}

// TestAlertDryRunSays: what would be told and written is said, and nobody is told.
func TestAlertDryRunSays(t *testing.T) {
	r := startAlertRun(t, nil, "--dry-run", "--alert", "http://"+freePort(t), "--at", "none", "--at", "user 80%:warn")
	r.hold(160)
	soon(t, "over the rung", func() bool {
		st := r.standing()
		return st != nil && len(st.Limits) > 0 && st.Limits[0].Ratio() > 0.8
	})
	r.end()
	if !strings.Contains(r.stderr.String(), "would tell alertmanager+http://127.0.0.1:") {
		t.Error(r.stderr.String())
	}
}
