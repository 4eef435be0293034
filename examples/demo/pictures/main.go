// Command pictures makes the pictures of the README from one real run of the demo: what
// the terminal shows, and the report's timeline of its last run.
//
//	go run ./examples/demo/pictures docs/pictures
//
// Nothing in them is drawn by hand: lines are left out, and where, it says "…".
package main

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
)

func main() { os.Exit(run(os.Args[1:], os.Stderr)) }

func run(args []string, stderr io.Writer) int {
	if len(args) != 1 {
		fmt.Fprintln(stderr, "usage: pictures DIR")
		return 2
	}
	if err := draw(args[0]); err != nil {
		fmt.Fprintln(stderr, "error:", err)
		return 1
	}
	return 0
}

// draw runs the demo and writes demo.svg and report.svg into dir.
func draw(dir string) error {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	var out bytes.Buffer
	cmd := exec.Command("bash", "examples/demo/demo.sh")
	cmd.Env = append(os.Environ(), "DEMO_SVG="+filepath.Join(dir, "report.svg"))
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("cannot run the demo: %w\n%s", err, out.Bytes())
	}
	return os.WriteFile(filepath.Join(dir, "demo.svg"), terminal(story(out.String())), 0o644)
}
