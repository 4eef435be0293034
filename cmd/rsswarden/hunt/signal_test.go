package hunt

import (
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"syscall"
	"testing"
)

func init() { roles["parent"] = parent }

// parent starts a command and takes SIGUSR1 itself: args[0] is the file that it makes
// on the first one. It prints how often it got the signal, and the command's status.
func parent(args []string) int {
	got := make(chan os.Signal, 16)
	signal.Notify(got, syscall.SIGUSR1)
	cmd := exec.Command(args[1], args[2:]...)
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	if err := cmd.Start(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	ended := make(chan struct{})
	go func() { cmd.Wait(); close(ended) }()
	for n := 0; ; {
		select {
		case <-got:
			n++
			os.WriteFile(args[0], nil, 0o600)
		case <-ended:
			fmt.Println("signals", n+len(got), "status", cmd.ProcessState)
			return 0
		}
	}
}

// What any process of the command's tree sends to the command's parent, as $PPID names
// it in every subshell, goes to whoever started rsswarden, and never to the command.
func TestSignalToParent(t *testing.T) {
	// The watcher, which tells a signal to the group from one to the parent, comes a
	// millisecond after the command. Each sender lives until the signal has arrived: see "What is forwarded" of
	// supervisor/hold for one that does not.
	const arrived = `while [ $held = yes ] && ! pgrep -P $PPID rss-watcher >/dev/null; do sleep .01; done; arrived() { for i in $(seq 500); do [ -e "$got" ] && return; sleep .01; done; echo lost; }; `
	for name, script := range map[string]string{
		"the command":             `kill -USR1 $PPID; arrived; echo done`,
		"a subshell":              `( kill -USR1 $PPID; arrived ) & wait; echo done`,
		"a nested subshell":       `( ( ( kill -USR1 $PPID; arrived ) & wait ) & wait ); echo done`,
		"a program":               `python3 -c 'import os,sys,time; os.kill(int(sys.argv[1]), 10); [time.sleep(.01) for i in range(500) if not os.path.exists(os.environ["got"])]' $PPID; arrived; echo done`,
		"a session of its own":    `setsid bash -c 'kill -USR1 $1; for i in $(seq 500); do [ -e "$got" ] && exit; sleep .01; done' bash $PPID; arrived; echo done`,
		"a subshell to the group": `trap 'echo mine' USR1; ( trap '' USR1; kill -USR1 0; arrived ); arrived; echo done`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			run := func(kind string, wrap ...string) string {
				got := filepath.Join(t.TempDir(), kind)
				cmd := role("parent", append(append([]string{got}, wrap...), "bash", "-c", arrived+script)...)
				cmd.Env = append(os.Environ(), "got="+got, "held="+map[bool]string{true: "yes", false: "no"}[len(wrap) > 0])
				cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
				r := finish(t, cmd)
				return r.stdout + r.stderr
			}
			bare := run("bare")
			wrapped := run("wrapped", binary, "run", "--quiet", "--record", "none", "--")
			if bare != wrapped {
				t.Errorf("bare:\n%s\nwrapped:\n%s", bare, wrapped)
			}
		})
	}
}
