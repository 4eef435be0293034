package doctor

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/rss/procfile"
	"github.com/rsswarden/rsswarden/rss/proctree"
	"github.com/rsswarden/rsswarden/supervisor/trim"
)

// Feature is a feature of the kernel that rsswarden can do without.
type Feature struct {
	Name  string
	Since string // the first version of Linux that has it
	Where string // what was tried
	// Without is what is slower or not done.
	Without string
	// Err is what the kernel said; nil where the feature is there.
	Err error

	probe func(proc string) error
}

// Features lists what is looked for.
var Features = []Feature{
	{Name: "rss-parts", Since: "4.5", Where: "RssAnon in /proc/self/status", probe: probeField("status", procfile.Status, "\nRssAnon:"),
		Without: "all of a process's RSS counts as anonymous: what a trim can give back is not seen"},
	{Name: "smaps-rollup", Since: "4.14", Where: "/proc/self/smaps_rollup", probe: probeField("smaps_rollup", procfile.Small, "\nPss:"),
		Without: "the PSS of most processes cannot be read: where it decides (UsePss), it is only known to lie between 0 and RSS"},
	{Name: "pidfd", Since: "5.3", Where: "pidfd_open(2)", probe: func(string) error { return opened(unix.PidfdOpen(os.Getpid(), 0)) },
		Without: "SIGCHLD tells of the command's end, and signals go by PID, after a look at its start time"},
	{Name: "psi", Since: "4.20", Where: "a trigger in /proc/pressure/memory", probe: probePressure,
		Without: "stalls for memory do not bring the next look forward; nothing else rests on it"},
	{Name: "inotify", Since: "2.6.13", Where: "inotify_init1(2)", probe: func(string) error { return opened(unix.InotifyInit1(unix.IN_CLOEXEC)) },
		Without: "what loaders report is met at the next look, at most a pause later"},
	{Name: "fd-count", Since: "6.2", Where: "st_size of /proc/self/fd", probe: probeDescriptors,
		Without: "open descriptors are counted by listing them, about 1 us each"},
	{Name: "cachestat", Since: "6.5", Where: "cachestat(2)", probe: probeCachestat,
		Without: "how much `rsswarden trim --drop` takes out of the page cache is not measured"},
	{Name: "pagemap-scan", Since: "6.7", Where: "PAGEMAP_SCAN of /proc/self/pagemap", probe: probeScan,
		Without: "--trim auto and --trim ptrace read smaps and pagemap instead, which takes longer, and cut long mappings evenly"},
	{Name: "procmap-query", Since: "6.11", Where: "PROCMAP_QUERY of /proc/self/maps", probe: probeQuery,
		Without: "--trim auto and --trim ptrace read /proc/PID/maps while a process is stopped: its stops are longer"},
}

// probeFeatures tries each of [Features].
func probeFeatures(proc string) []Feature {
	features := slices.Clone(Features)
	for i := range features {
		features[i].Err = features[i].probe(proc)
	}
	return features
}

func (d *prober) kernel() []Check {
	var name unix.Utsname
	release := "of unknown version"
	if unix.Uname(&name) == nil {
		release = unix.ByteSliceToString(name.Release[:])
	}
	return kernelChecks(release, probeFeatures("/proc"))
}

// kernelChecks says what the kernel has. release is its version, of uname(2).
func kernelChecks(release string, features []Feature) []Check {
	checks := []Check{{Name: NameKernel, Status: OK, Found: "Linux " + release, Source: "uname, and each was tried"}}
	for _, f := range features {
		c := Check{Name: featurePrefix + f.Name, Status: OK, Found: "there", Source: f.Where}
		if f.Err != nil {
			c = c.as(Limited, "", "not there (%v; Linux %s has it): %s", f.Err, f.Since, f.Without)
		}
		checks = append(checks, c)
	}
	return checks
}

var errAbsent = errors.New("absent")

// probeField looks for a field in a file of this process.
func probeField(file string, most int, field string) func(proc string) error {
	return func(proc string) error {
		b, err := procfile.Read(filepath.Join(proc, "self", file), most)
		if err == nil && !bytes.Contains(b, []byte(field)) {
			err = errAbsent
		}
		return errnoOf(err)
	}
}

func opened(fd int, err error) error {
	if err == nil {
		unix.Close(fd)
	}
	return err
}

// probePressure asks as the watcher does: for 50 ms of stalls in 2 s.
func probePressure(proc string) error {
	fd, err := unix.Open(filepath.Join(proc, "pressure", "memory"), unix.O_RDWR|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	_, err = unix.Write(fd, []byte("some 50000 2000000\x00"))
	return err
}

func probeDescriptors(proc string) error {
	var st unix.Stat_t
	if err := unix.Stat(filepath.Join(proc, "self", "fd"), &st); err != nil {
		return err
	}
	if st.Size == 0 {
		return errAbsent
	}
	return nil
}

func probeCachestat(string) error {
	f, err := os.CreateTemp("", "rsswarden-doctor-")
	if err != nil {
		return errnoOf(err)
	}
	defer f.Close()
	defer os.Remove(f.Name())
	var st unix.Cachestat_t
	return unix.Cachestat(uint(f.Fd()), &unix.CachestatRange{}, &st, 0)
}

// probeScan asks for no page of an empty range: struct pm_scan_arg of linux/fs.h.
func probeScan(proc string) error {
	arg := [12]uint64{0: 12 * 8}
	return ioctl(filepath.Join(proc, "self", "pagemap"), 0xc0606610, unsafe.Pointer(&arg))
}

// probeQuery asks for the mapping at the address of its own argument: struct
// procmap_query of linux/fs.h.
func probeQuery(proc string) error {
	arg := [13]uint64{0: 13 * 8}
	arg[2] = uint64(uintptr(unsafe.Pointer(&arg)))
	return ioctl(filepath.Join(proc, "self", "maps"), 0xc0686611, unsafe.Pointer(&arg))
}

func ioctl(name string, request uintptr, arg unsafe.Pointer) error {
	fd, err := unix.Open(name, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	if _, _, e := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), request, uintptr(arg)); e != 0 {
		return e
	}
	return nil
}

// ptraceFacts are what ptrace may do here.
type ptraceFacts struct {
	Supported bool   // the processor is one that trimming by ptrace was run on
	Arch      string // its name
	// Scope is Yama's ptrace_scope, empty where the kernel has no Yama.
	Scope string
	// The seccomp mode and the number of filters, -1 if unknown; what we start has the
	// same.
	Seccomp, Filters int
	// Dumpable is PR_GET_DUMPABLE of our own process.
	Dumpable bool
	// Why a child of ours may not be trimmed, or could not be stopped; both empty if it
	// worked.
	Refused, Failed string
}

// ptraceCheck says whether --trim ptrace and --trim auto would work.
func ptraceCheck(f ptraceFacts) Check {
	c := Check{Name: NamePtrace, Status: OK, Source: "a child was stopped and let go"}
	const hook = "keep --trim hook, the default, which needs no ptrace"
	switch {
	case !f.Supported:
		c.Source = "the program was built for " + f.Arch
		return c.as(Off, hook, "--trim ptrace was only ever run on amd64")
	case f.Scope != "" && f.Scope != "0" && f.Scope != "1":
		c.Source = "/proc/sys/kernel/yama/ptrace_scope"
		return c.as(Off, hook, "Yama's ptrace_scope is %s: no process may be stopped for a trim", f.Scope)
	case f.Refused != "":
		return c.as(Off, hook, "a child of rsswarden may not be trimmed: %s", f.Refused)
	case f.Failed != "":
		return c.as(Off, hook+"; in a container, its seccomp profile may forbid ptrace", "a child of rsswarden could not be stopped: %s", f.Failed)
	}
	c.Found = "--trim auto and --trim ptrace can stop what rsswarden starts"
	switch f.Scope {
	case "":
		c.Found += "; no Yama"
	case "0":
		c.Found += "; Yama's ptrace_scope is 0"
	case "1":
		c.Found += "; Yama's ptrace_scope is 1: rsswarden trim and attach cannot use it"
	}
	if f.Seccomp != 0 {
		c.Found += fmt.Sprintf("; under %d seccomp filters, as is what it starts", f.Filters)
	}
	if !f.Dumpable {
		c = c.as(Limited, "chmod a+r the program", "%s; this rsswarden is not dumpable: its file may not be read by you", c.Found)
	}
	return c
}

// ptrace stops a child by ptrace as a trim would, and lets it go.
func (d *prober) ptrace() []Check {
	f := ptraceFacts{Supported: runtime.GOARCH == "amd64", Arch: runtime.GOARCH}
	if b, err := procfile.Read("/proc/sys/kernel/yama/ptrace_scope", procfile.Small); err == nil {
		f.Scope = strings.TrimSpace(string(b))
	}
	if n, err := unix.PrctlRetInt(unix.PR_GET_DUMPABLE, 0, 0, 0, 0); err == nil {
		f.Dumpable = n == 1
	}
	f.Seccomp, f.Filters = seccomp()
	f.Refused, f.Failed = tryPtrace()
	c := ptraceCheck(f)
	d.ptraceWorks = c.Status == OK
	return []Check{c}
}

// seccomp is the mode of this process and the number of its filters, -1 if unknown.
func seccomp() (mode, filters int) {
	filters = -1
	b, _ := procfile.Read("/proc/self/status", procfile.Status)
	for line := range strings.Lines(string(b)) {
		_, _ = fmt.Sscanf(line, "Seccomp: %d", &mode)
		_, _ = fmt.Sscanf(line, "Seccomp_filters: %d", &filters)
	}
	return mode, filters
}

// tryPtrace says why a child may not be trimmed, or could not be stopped.
func tryPtrace() (refused, failed string) {
	cat, err := exec.LookPath("cat")
	if err != nil {
		return "", err.Error()
	}
	child := exec.Command(cat)
	stdin, err := child.StdinPipe()
	if err == nil {
		err = child.Start()
	}
	if err != nil {
		return "", fmt.Sprintf("%s cannot be started: %v", filepath.Base(cat), errnoOf(err))
	}
	defer func() {
		stdin.Close() // it ends by itself
		_ = child.Wait()
	}()
	id := rss.ProcID{PID: child.Process.Pid}
	if id.Start, err = proctree.StartTime("/proc", id.PID); err != nil {
		return "", err.Error()
	}
	if r, detail := trim.Check(trim.CheckOptions{Proc: "/proc", ID: id}); r != trim.None && !r.Passing() {
		return fmt.Sprintf("%s, %s", r.Reason(), detail), ""
	}
	stopped, ok := within(func() error { return stopOnce(id.PID) })
	switch {
	case !ok:
		_ = child.Process.Kill()
		return "", "it did not stop"
	case stopped != nil:
		return "", stopped.Error()
	}
	return "", ""
}

// stopOnce stops a process and releases it. The end of its thread would release it too.
func stopOnce(pid int) error {
	runtime.LockOSThread()
	if err := unix.PtraceSeize(pid); err != nil {
		return fmt.Errorf("PTRACE_SEIZE: %w", err)
	}
	if err := unix.PtraceInterrupt(pid); err != nil {
		return fmt.Errorf("PTRACE_INTERRUPT: %w", err)
	}
	var status unix.WaitStatus
	if _, err := unix.Wait4(pid, &status, unix.WALL, nil); err != nil {
		return fmt.Errorf("wait4: %w", err)
	}
	if err := unix.PtraceDetach(pid); err != nil {
		return fmt.Errorf("PTRACE_DETACH: %w", err)
	}
	return nil
}
