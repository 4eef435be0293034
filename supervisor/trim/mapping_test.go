package trim

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/iotest"

	"golang.org/x/sys/unix"

	"github.com/rsswarden/rsswarden/rss"
)

// record is one of smaps as Linux 6.18 prints it, in kB.
func record(header string, size, resident, proportional int, flags string) string {
	return header + "\n" + fmt.Sprintf(`Size:           %8d kB
KernelPageSize:        4 kB
MMUPageSize:           4 kB
Rss:            %8d kB
Pss:            %8d kB
Pss_Dirty:             0 kB
Shared_Clean:          0 kB
Private_Clean:  %8d kB
Referenced:     %8d kB
Anonymous:             0 kB
Locked:                0 kB
THPeligible:           0
`, size, resident, proportional, resident, resident) + "VmFlags: " + flags + " \n"
}

const (
	goodHeader = "7f0000000000-7f0001000000 r--s 00002000 fe:01 247278                     /data/train.arrow"
	anonFlags  = "rd wr mr mw me ac sd"
	goodFlags  = "rd mr me ms sd"    // of a file open for reading
	openFlags  = "rd sh mr mw me ms" // for writing too
)

func good() string { return record(goodHeader, 16384, 8192, 4096, goodFlags) }

func smapsOf(r io.Reader) ([]Mapping, error) { return readSmaps(r, func(Mapping) {}) }

func TestSmaps(t *testing.T) {
	anon := record("7effff000000-7f0000000000 rw-p 00000000 00:00 0 ", 16384, 16384, 16384, anonFlags)
	want := Mapping{
		Lo: 0x7f0000000000, Hi: 0x7f0001000000, Offset: 0x2000, Dev: unix.Mkdev(0xfe, 1), Inode: 247278,
		Path: "/data/train.arrow", Resident: 8 * rss.MiB,
	}
	// Reads end anywhere.
	for name, r := range map[string]io.Reader{
		"whole": strings.NewReader(anon + good()), "one byte": iotest.OneByteReader(strings.NewReader(anon + good())),
		"data with EOF": iotest.DataErrReader(strings.NewReader(anon + good())),
	} {
		got, err := smapsOf(r)
		if err != nil || len(got) != 1 || !reflect.DeepEqual(got[0], want) {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
	}
}

func TestSmapsPicks(t *testing.T) {
	for name, c := range map[string]struct {
		old, new string
		path     string // of what is found, "" for nothing
	}{
		"all is well":       {"", "", "/data/train.arrow"},
		"deleted":           {"train.arrow", "train.arrow (deleted)", "/data/train.arrow (deleted)"},
		"spaces":            {"train.arrow", "a  b", "/data/a  b"},
		"newline":           {"train.arrow", `a\012b`, "/data/a\nb"},
		"no inode":          {"247278", "0", ""},
		"20 digits":         {"247278", "18446744073709551615", "/data/train.arrow"},
		"writable":          {"r--s", "rw-s", ""},
		"executable":        {"r--s", "r-xs", ""},
		"private":           {"r--s", "r--p", ""},
		"no access":         {"r--s", "---s", ""},
		"device":            {"/data/train.arrow", "/dev/nvidia0", ""},
		"shared memory":     {"/data/train.arrow", "/dev/shm/x", ""},
		"zero":              {"/data/train.arrow", "/dev/zero (deleted)", ""},
		"memfd":             {"/data/train.arrow", "/memfd:x (deleted)", ""},
		"System V":          {"/data/train.arrow", "/SYSV00000000 (deleted)", ""},
		"hugetlb":           {"/data/train.arrow", "/anon_hugepage (deleted)", ""},
		"dma-buf":           {"/data/train.arrow", "/dmabuf:", ""},
		"unreachable":       {"/data/train.arrow", "(unreachable)/train.arrow", ""},
		"pseudo":            {"/data/train.arrow", "anon_inode:[perf_event]", ""},
		"no name":           {"/data/train.arrow", "", ""},
		"locked":            {" ms", " ms lo", ""},
		"device memory":     {" ms", " io ms", ""},
		"page frames":       {" ms", " pf ms", ""},
		"huge pages":        {" ms", " ms ht", ""},
		"userfaultfd":       {" ms", " um ms", ""},
		"not shared":        {" ms", "", ""},
		"open for writing":  {goodFlags, openFlags, "/data/train.arrow"},
		"pages of its own":  {"Anonymous:             0", "Anonymous:             4", ""},
		"before Linux 3.8":  {"VmFlags: " + goodFlags + " \n", "", ""},
		"little":            {"8192 kB\nPss", "4 kB\nPss", "/data/train.arrow"},
		"nothing but a dir": {"/data/train.arrow", "/", ""},
	} {
		in := strings.Replace(good(), c.old, c.new, 1)
		if c.old != "" && in == good() {
			t.Fatalf("%s: nothing replaced", name)
		}
		got, err := smapsOf(strings.NewReader(in))
		if err != nil || len(got) > 1 || (len(got) == 1) != (c.path != "") || len(got) == 1 && got[0].Path != c.path {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
	}
}

// A mapping that merges with the one before it between two reads is shown as
// both: the longer one is what there is.
func TestSmapsMerged(t *testing.T) {
	longer := strings.Replace(goodHeader, "7f0001000000", "7f0002000000", 1)
	got, err := smapsOf(strings.NewReader(good() + record(longer, 32768, 16384, 16384, goodFlags)))
	if err != nil || len(got) != 1 || got[0].Hi != 0x7f0002000000 || got[0].Resident != 16*rss.MiB {
		t.Errorf("%+v, %v", got, err)
	}
}

func TestSmapsMalformed(t *testing.T) {
	for name, in := range map[string]string{
		"no record":        "Rss: 4 kB\n",
		"header alone":     goodHeader + "\n",
		"no Rss":           strings.Replace(good(), "Rss:", "Rxx:", 1),
		"other unit":       strings.Replace(good(), "8192 kB\nPss", "8192 MB\nPss", 1),
		"no number":        strings.Replace(good(), "8192 kB\nPss", "x kB\nPss", 1),
		"overflow":         strings.Replace(good(), "8192 kB\nPss", "99999999999999999999 kB\nPss", 1),
		"more than mapped": strings.Replace(good(), "8192 kB\nPss", "16388 kB\nPss", 1),
		"not a page":       strings.Replace(good(), "7f0000000000", "7f0000000001", 1),
		"backward":         strings.Replace(good(), "7f0001000000", "7effff000000", 1),
		"empty":            strings.Replace(good(), "7f0001000000", "7f0000000000", 1),
		"offset":           strings.Replace(good(), "00002000", "00002001", 1),
		"short header":     strings.Replace(good(), goodHeader, "7f0000000000-7f0001000000", 1),
		"twice":            good() + good(),
		"no colon":         strings.Replace(good(), "Size:", "Size ", 1),
		"long line":        strings.Replace(good(), "/data", "/"+strings.Repeat("x", 1<<16), 1),
		"cut":              strings.TrimSuffix(good(), "\n"),
	} {
		if got, err := smapsOf(strings.NewReader(in)); !errors.Is(err, errMalformed) || len(got) > 1 {
			t.Errorf("%s: %d mappings, %v", name, len(got), err)
		}
	}
	// The others are returned, with the number of those that are not.
	bad := strings.NewReplacer("7f0000", "7f1000", "7f0001", "7f1001", "Rss:", "Rxx:").Replace(good())
	got, err := smapsOf(strings.NewReader(good() + bad))
	if len(got) != 1 || err == nil || !strings.Contains(err.Error(), "1 places of 2 records") {
		t.Errorf("%d mappings, %v", len(got), err)
	}
	if _, err := smapsOf(iotest.ErrReader(unix.ESRCH)); !errors.Is(err, unix.ESRCH) {
		t.Error(err)
	}
}

func TestSmapsCrowded(t *testing.T) {
	var b bytes.Buffer
	for i := range MaxMappings + 1 {
		fmt.Fprintf(&b, "%x-%x rw-p 00000000 00:00 0 \n", 0x10000*(i+1), 0x10000*(i+2))
	}
	if _, err := smapsOf(&b); !errors.Is(err, errCrowded) {
		t.Error(err)
	}
}

func FuzzSmaps(f *testing.F) {
	f.Add([]byte(good()))
	f.Add([]byte(record("7f1000000000-7f1001000000 r--s 00000000 00:2f 18446744073709551615 /nfs/a\\012b (deleted)", 16384, 4096, 1, "ms lo")))
	f.Add([]byte(good() + record(strings.Replace(goodHeader, "7f0001", "7f0002", 1), 32768, 16384, 16384, goodFlags)))
	f.Add([]byte(goodHeader + "\n" + goodHeader + "\nRss:  \n\nPss: -1 kB\nVmFlags:\n"))
	f.Add([]byte("ffffffffff600000-ffffffffff601000 --xp 00000000 00:00 0                  [vsyscall]\nRss: 0 kB\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		got, err := smapsOf(bytes.NewReader(b))
		end := uint64(0)
		for _, m := range got {
			if m.Lo < end || m.Lo >= m.Hi || (m.Lo|m.Hi|m.Offset)%pageBytes != 0 {
				t.Errorf("addresses %+v after %x", m, end)
			}
			if m.Inode == 0 || m.Resident > rss.Bytes(m.Hi-m.Lo) || !strings.HasPrefix(m.Path, "/") ||
				strings.HasPrefix(m.Path, "/dev/") || strings.HasPrefix(m.Path, "/memfd:") {
				t.Errorf("%+v", m)
			}
			end = m.Hi
		}
		if len(got) > 0 && !(bytes.Contains(b, []byte(" r--s ")) && bytes.Contains(b, []byte("ms"))) {
			t.Errorf("%+v from %q", got, b)
		}
		// What is read does not depend on where reads end.
		again, err2 := smapsOf(iotest.OneByteReader(bytes.NewReader(b)))
		if len(again) != len(got) || (err == nil) != (err2 == nil) {
			t.Errorf("%d mappings, %v and %d mappings, %v", len(got), err, len(again), err2)
		}
	})
}

// TestMapped: what is mapped shared and read-only from a file, and no other.
func TestMapped(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a b")
	must(t, os.WriteFile(path, make([]byte, 8<<20), 0o600))
	m, unmap := mapped(t, path)
	defer unmap()
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	must(t, err)
	defer f.Close()
	for _, how := range [][2]int{{unix.PROT_READ | unix.PROT_WRITE, unix.MAP_SHARED}, {unix.PROT_READ, unix.MAP_PRIVATE}} {
		b, err := unix.Mmap(int(f.Fd()), 0, 8<<20, how[0], how[1])
		must(t, err)
		defer unix.Munmap(b)
	}
	id := idOf(t, os.Getpid())
	all, err := mappedNow("/proc", id)
	must(t, err)
	all = slices.DeleteFunc(all, func(o Mapping) bool { return o.Inode != m.Inode || o.Dev != m.Dev })
	if len(all) != 1 || all[0].Path != path || all[0].Hi-all[0].Lo != 8<<20 || all[0].Resident != 0 {
		t.Errorf("%+v", all)
	}
	id.Start++
	if _, err := mappedNow("/proc", id); !errors.Is(err, unix.ESRCH) {
		t.Errorf("of one that has ended: %v", err)
	}
}
