package cgroup

import (
	"bytes"
	"errors"
	"slices"
	"strings"
)

var errMalformed = errors.New("malformed")

// group is one line of /proc/PID/cgroup: "4:memory:/slurm/uid_1000/job_7" for
// v1, "0::/system.slice/…" for v2.
type group struct {
	id          string
	controllers []string
	path        string
}

func (g group) unified() bool { return g.id == "0" && len(g.controllers) == 0 }

// parseGroups reads /proc/PID/cgroup, v1 hierarchies with the memory
// controller first, since a v2 hierarchy beside them has none. A path may hold colons, and ends in " (deleted)" where the
// directory was removed under the process.
func parseGroups(b []byte) ([]group, error) {
	var v1, rest []group
	for line := range bytes.Lines(b) {
		line = bytes.TrimSuffix(line, []byte("\n"))
		if len(line) == 0 {
			continue
		}
		f := strings.SplitN(string(line), ":", 3)
		if len(f) != 3 || !strings.HasPrefix(f[2], "/") {
			return nil, errMalformed
		}
		g := group{id: f[0], path: strings.TrimSuffix(f[2], " (deleted)")}
		if f[1] != "" {
			g.controllers = strings.Split(f[1], ",")
		}
		if slices.Contains(g.controllers, "memory") {
			v1 = append(v1, g)
		} else {
			rest = append(rest, g)
		}
	}
	return append(v1, rest...), nil
}

// mount is one cgroup mount of /proc/PID/mountinfo.
type mount struct {
	root, point string
	version     int
	controllers []string // v1: its super options, controllers among them
}

// parseMounts reads the cgroup mounts of /proc/PID/mountinfo
// (proc_pid_mountinfo(5)): ID, parent, device, root, mount point, options, any
// number of tags, "-", type, source, super options.
func parseMounts(b []byte) ([]mount, error) {
	var mounts []mount
	lines, bad := 0, 0
	for line := range bytes.Lines(b) {
		f := strings.Fields(string(line))
		if len(f) == 0 {
			continue
		}
		lines++
		dash := slices.Index(f, "-")
		if dash < 6 || len(f) < dash+3 {
			bad++
			continue
		}
		m := mount{root: unescape(f[3]), point: unescape(f[4])}
		switch f[dash+1] {
		case "cgroup":
			m.version = 1
			if len(f) > dash+3 {
				m.controllers = strings.Split(f[dash+3], ",")
			}
		case "cgroup2":
			m.version = 2
		default:
			continue
		}
		mounts = append(mounts, m)
	}
	if lines > 0 && bad == lines {
		return nil, errMalformed
	}
	return mounts, nil
}

// unescape undoes the kernel's octal escapes of space, tab, newline and
// backslash ("\040").
func unescape(s string) string {
	if !strings.Contains(s, `\`) {
		return s
	}
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] == '\\' && i+3 < len(s) && octal(s[i+1]) && octal(s[i+2]) && octal(s[i+3]) {
			b.WriteByte((s[i+1]-'0')<<6 | (s[i+2]-'0')<<3 | (s[i+3] - '0'))
			i += 3
			continue
		}
		b.WriteByte(s[i])
	}
	return b.String()
}

func octal(c byte) bool { return c >= '0' && c <= '7' }
