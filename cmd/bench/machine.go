package main

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"github.com/prometheus/procfs"
	"golang.org/x/sys/unix"
)

// newReport says what is measured, and where.
func newReport(root string) (*Report, error) {
	var name unix.Utsname
	var info unix.Sysinfo_t
	if err := unix.Uname(&name); err != nil {
		return nil, fmt.Errorf("cannot read the kernel's version: %w", err)
	}
	if err := unix.Sysinfo(&info); err != nil {
		return nil, fmt.Errorf("cannot read the machine's memory: %w", err)
	}
	git := func(args ...string) string {
		out, err := exec.Command("git", append([]string{"-C", root}, args...)...).Output()
		if err != nil {
			return "unknown"
		}
		return strings.TrimSpace(string(out))
	}
	return &Report{
		Version: git("describe", "--tags", "--always", "--dirty"),
		Commit:  git("rev-parse", "HEAD"),
		Dirty:   git("status", "--porcelain", "--untracked-files=no") != "",
		Began:   time.Now(),
		Kernel:  unix.ByteSliceToString(name.Release[:]),
		CPU:     cpu(),
		CPUs:    runtime.NumCPU(),
		Memory:  info.Totalram * uint64(info.Unit),
		Load:    load(),
	}, nil
}

// load is the first average of /proc/loadavg.
func load() float64 {
	var v float64
	if text, err := os.ReadFile("/proc/loadavg"); err == nil {
		fmt.Sscan(string(text), &v)
	}
	return v
}

// available is MemAvailable in GiB.
func available() float64 {
	fs, err := procfs.NewFS("/proc")
	if err != nil {
		return 0
	}
	m, err := fs.Meminfo()
	if err != nil || m.MemAvailableBytes == nil {
		return 0
	}
	return float64(*m.MemAvailableBytes) / (1 << 30)
}

func cpu() string {
	f, err := os.Open("/proc/cpuinfo")
	if err != nil {
		return runtime.GOARCH
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		if key, value, _ := strings.Cut(lines.Text(), ":"); strings.TrimSpace(key) == "model name" {
			return strings.TrimSpace(value)
		}
	}
	return runtime.GOARCH
}

// sourceTree is the directory of go.mod, from which rsswarden is built.
func sourceTree() (string, error) {
	out, err := exec.Command("go", "env", "GOMOD").Output()
	mod := strings.TrimSpace(string(out))
	if err != nil || mod == "" || mod == os.DevNull {
		return "", fmt.Errorf("cannot find the source tree: run me inside it (%w)", orMissing(err))
	}
	return filepath.Dir(mod), nil
}

func orMissing(err error) error {
	if err == nil {
		return os.ErrNotExist
	}
	return err
}
