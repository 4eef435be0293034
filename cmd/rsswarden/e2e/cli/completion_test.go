package cli

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/creack/pty"

	"github.com/rsswarden/rsswarden/supervisor/wardentest"
)

// typist types into a shell on a terminal, as a user does.
type typist struct {
	t    *testing.T
	tty  *os.File
	dump string // the shell writes its line there at Ctrl-T
}

// shellSetup has a shell know the completion, put the line it has into $DUMP at Ctrl-T,
// and say that it is ready.
var shellSetup = map[string]struct {
	args   []string
	script string
}{
	"bash": {bashArgs, bashScript},
	// The same beside what most systems complete other commands with.
	"bash with bash-completion": {bashArgs, "test -e /usr/share/bash-completion/bash_completion || exit\nsource /usr/share/bash-completion/bash_completion\n" + bashScript},
	"zsh":                       {zshArgs, "autoload -Uz compinit; compinit -D -u; source <(rsswarden completion zsh)\n" + zshScript},
	// As a package installs it.
	"zsh by fpath": {zshArgs, "mkdir $HOME/f; rsswarden completion zsh >$HOME/f/_rsswarden; fpath=($HOME/f $fpath); autoload -Uz compinit; compinit -D -u\n" + zshScript},
	"fish": {[]string{"--no-config", "-i", "--private"}, `rsswarden completion fish | source
function dump; commandline >"$DUMP.part"; mv "$DUMP.part" "$DUMP"; end
bind \ct dump; set -g fish_autosuggestion_enabled 0; set -g fish_greeting
touch "$DUMP.ready"
`},
}

var (
	bashArgs   = []string{"--norc", "--noprofile", "-i"}
	bashScript = `source <(rsswarden completion bash)
dump() { printf %s "$READLINE_LINE" >"$DUMP.part"; mv "$DUMP.part" "$DUMP"; }
bind -x '"\C-t": dump'; bind 'set bell-style none'; bind 'set completion-query-items 0'; bind 'set page-completions off'
touch "$DUMP.ready"
`
	zshArgs   = []string{"-f", "-i"}
	zshScript = `dump() { print -rn -- "$BUFFER" >"$DUMP.part"; mv "$DUMP.part" "$DUMP" }
zle -N dump; bindkey '^T' dump; bindkey '^U' kill-whole-line; unsetopt beep; LISTMAX=1000
touch "$DUMP.ready"
`
)

func newTypist(t *testing.T, kind, dir string, env ...string) *typist {
	t.Helper()
	shell, _, _ := strings.Cut(kind, " ")
	path, err := exec.LookPath(shell)
	if err != nil {
		t.Skip("no such shell:", err)
	}
	p := &typist{t: t, dump: filepath.Join(t.TempDir(), "line")}
	setup := shellSetup[kind]
	script := filepath.Join(t.TempDir(), "setup")
	wardentest.NoError(t, os.WriteFile(script, []byte(setup.script), 0o644))
	cmd := exec.Command(path, setup.args...)
	cmd.Dir = dir
	cmd.Env = append([]string{
		"PATH=" + filepath.Dir(binary) + ":/usr/bin:/bin", "HOME=" + dir, "XDG_STATE_HOME=" + filepath.Join(dir, "state"),
		"XDG_CONFIG_HOME=" + dir, "XDG_DATA_HOME=" + dir, "TMPDIR=" + dir, "RSSWARDEN_RUNTIME=" + dir, "TERM=xterm", "LC_ALL=C.UTF-8", "DUMP=" + p.dump, "PS1=> ",
	}, env...)
	if p.tty, err = pty.StartWithSize(cmd, &pty.Winsize{Rows: 50, Cols: 200}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cmd.Process.Kill()
		p.tty.Close()
		cmd.Wait()
	})
	go func() {
		for b := make([]byte, 4096); ; {
			if _, err := p.tty.Read(b); err != nil {
				return
			}
		}
	}()
	p.write("source " + script + "\r")
	p.await(p.dump + ".ready")
	return p
}

func (p *typist) write(s string) {
	p.t.Helper()
	if _, err := p.tty.WriteString(s); err != nil {
		p.t.Fatal(err)
	}
}

func (p *typist) await(file string) {
	p.t.Helper()
	wardentest.Until(p.t, "the shell gets to "+filepath.Base(file), func() bool {
		_, err := os.Stat(file)
		return err == nil
	})
}

// completed is the line after the key Tab.
func (p *typist) completed(typed string) string {
	p.t.Helper()
	os.Remove(p.dump)
	p.write("\x15" + typed + "\t\x14")
	p.await(p.dump)
	b := wardentest.ReadFile(p.t, p.dump)
	p.write("\x15")
	return strings.TrimRight(string(b), " \n")
}

// completionHome has a record, a file, and a squeue that answers.
func completionHome(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range map[string]string{
		"options.toml":        "",
		"elsewhere/page.html": "",
		"bin/squeue":          "#!/bin/sh\necho 990047 train\n",
		"bin/frobnicate":      "#!/bin/sh\n",
		".rsswarden/20260102T030405Z-990118.0.0-n1-12.jsonl": "{}\n",
	} {
		path := filepath.Join(dir, name)
		wardentest.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		wardentest.NoError(t, os.WriteFile(path, []byte(text), 0o755))
	}
	return dir
}

// TestCompletionInShells types in real shells. What is completed is the same in all.
func TestCompletionInShells(t *testing.T) {
	for shell := range shellSetup {
		t.Run(shell, func(t *testing.T) {
			t.Parallel()
			dir := completionHome(t)
			p := newTypist(t, shell, dir, "PATH="+filepath.Join(dir, "bin")+":"+filepath.Dir(binary)+":/usr/bin:/bin")
			for _, c := range []struct{ typed, want string }{
				{"rsswarden recy", "recycle"},
				{"rsswarden --ver", "--version"},
				{"rsswarden run --checkpoint-f", "--checkpoint-file"},
				{"rsswarden run --accounting nos", "noshared"},
				{"rsswarden run --accounting=nos", "--accounting=noshared"},
				{"rsswarden run --trim pt", "ptrace"},
				{"rsswarden attach --job 9900", "990047"},
				{"rsswarden report 9", "990118"},
				{"rsswarden replay 9", "990118"},
				{"rsswarden run --config opt", "options.toml"},
				{"rsswarden report --html elsewhere/pa", "elsewhere/page.html"},
				{"rsswarden run --at 85%:rec", "85%:recycle"},
				{"rsswarden run --at '97%:requ", "97%:requeue"},
				{"rsswarden run --at=85%:tri", "--at=85%:trim"},
				{"rsswarden top --sort nod", "node"},
				{"rsswarden completion fi", "fish"},
				{"rsswarden run --limit 3G frobn", "frobnicate"},
				{"rsswarden run -- frobnicate opt", "options.toml"},
				{"rsswarden run --at=85%:trim -- frobnicate elsewh", "elsewhere/"},
			} {
				want := c.typed[:strings.LastIndex(c.typed, " ")+1] + c.want
				got := p.completed(c.typed)
				if quoted := strings.Contains(c.typed, "'"); quoted {
					got, want = strings.ReplaceAll(got, "'", ""), strings.ReplaceAll(want, "'", "")
				}
				if got != want {
					t.Errorf("%q becomes %q, want %q", c.typed, got, want)
				}
			}
		})
	}
}

func words(t *testing.T, dir string, env []string, args ...string) string {
	t.Helper()
	cmd := exec.Command(binary, append([]string{"completion-words", "--"}, args...)...)
	cmd.Dir = dir
	cmd.Env = append([]string{"PATH=/usr/bin:/bin", "HOME=" + dir, "TMPDIR=" + dir, "RSSWARDEN_RUNTIME=" + dir, "XDG_STATE_HOME=" + filepath.Join(dir, "state")}, env...)
	out, err := cmd.Output()
	wardentest.NoError(t, err)
	return string(out)
}

// TestCompletionWords: what there is to choose from.
func TestCompletionWords(t *testing.T) {
	dir := completionHome(t)
	for _, c := range []struct {
		args  []string
		want  []string // lines, or what they begin with
		never []string
	}{
		{[]string{"run", "--at", "free<8G:"}, []string{"free<8G:warn\t", "free<8G:signal=USR1\t", "free<8G:requeue\t", "free<8G:stop\t"}, nil},
		{[]string{"run", "--at", "shm"}, []string{"shm 90%:\t"}, []string{"none"}},
		{[]string{"run", "--at", "shm "}, []string{"shm 85%:\t", "shm eta<5m:\t"}, nil},
		{[]string{"run", "--at", "time"}, []string{"time eta<10m:\t"}, []string{"time 90%"}},
		{[]string{"run", "--at", "time "}, []string{"time eta<5m:\t"}, []string{"time 85%", "time free<"}},
		{[]string{"run", "--at", "time eta<5m:"}, []string{"time eta<5m:warn\t", "time eta<5m:signal=USR1\t"}, []string{"time eta<5m:trim"}},
		{[]string{"run", "--at=node 9"}, []string{"--at=node 95%:\t"}, nil},
		{[]string{"run", "--record", ""}, []string{"auto\t", "none\t", ":dirs"}, nil},
		{[]string{"run", "--dry-run", "--"}, []string{"--limit\t", "--grace\t", "--at\t"}, []string{"--dry-run", "--as-node"}},
		{[]string{"run", "--at", "85%:trim", "--a"}, []string{"--at\t", "--accounting\t"}, nil},
		{[]string{"status", "--"}, []string{"--json\t"}, []string{"--as-node", "--every"}},
		{[]string{"run", "--limit", "3G", "--", "python", "--"}, []string{":command 4"}, []string{"--limit"}},
		{[]string{"run", ""}, []string{":command 1"}, nil},
		{[]string{"report", "990118", ""}, []string{":files"}, []string{"990118"}},
		{[]string{"checkpoint", "--signal", "U"}, []string{"USR1", "USR2"}, []string{"TERM"}},
		{[]string{"nothing", ""}, nil, []string{"-"}},
		{[]string{"attach", fmt.Sprint(os.Getpid())}, []string{fmt.Sprint(os.Getpid()) + "\t"}, nil},
	} {
		got := "\n" + words(t, dir, nil, c.args...)
		for _, w := range c.want {
			wardentest.Says(t, got, "\n"+w)
		}
		for _, w := range c.never {
			if strings.Contains(got, "\n"+w) {
				t.Errorf("%q has %q:%s", c.args, w, got)
			}
		}
	}
}

// TestCompletionDoesNotWait: a Slurm that does not answer costs less than a second, and
// what is known without it is there.
func TestCompletionDoesNotWait(t *testing.T) {
	dir := completionHome(t)
	wardentest.NoError(t, os.WriteFile(filepath.Join(dir, "bin/squeue"), []byte("#!/bin/sh\nsleep 30 & wait\n"), 0o755))
	begin := time.Now()
	words(t, dir, []string{"PATH=" + filepath.Join(dir, "bin") + ":/usr/bin:/bin"}, "status", "--job", "")
	if took := time.Since(begin); took > 3*time.Second {
		t.Errorf("it took %v", took)
	}
}
