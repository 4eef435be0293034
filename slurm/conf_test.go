package slurm

import (
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestParseConf(t *testing.T) {
	for _, test := range []struct {
		name, text string
		want       []pair
	}{
		{"empty", "", nil},
		{"one", "TaskPlugin=task/cgroup\n", []pair{{"taskplugin", "task/cgroup"}}},
		{"no newline at the end", "A=1", []pair{{"a", "1"}}},
		{"several a line, any case", "FOO=1 bar=2\tBaz=3", []pair{{"foo", "1"}, {"bar", "2"}, {"baz", "3"}}},
		{"blanks around the sign", "  A = 1   B =2", []pair{{"a", "1"}, {"b", "2"}}},
		{"comments", "# A=1\nB=2 # C=3\nD=4#5\n", []pair{{"b", "2"}, {"d", "4"}}},
		{"escaped hash", `A=x\#y # z`, []pair{{"a", "x#y"}}},
		{"quotes", `A="x y" B="" C="z`, []pair{{"a", "x y"}, {"b", ""}, {"c", `"z`}}},
		{"continued", "A=1,\\\n2 \\\nB=3\n", []pair{{"a", "1,2"}, {"b", "3"}}},
		{"continued at the end", "A=1 \\", []pair{{"a", "1"}}},
		{"carriage returns", "A=1\r\nB=2\r\n", []pair{{"a", "1"}, {"b", "2"}}},
		{"records keep their own names to themselves", "PartitionName=x SelectTypeParameters=CR_Core\nNodeName=n CPUs=2",
			[]pair{{"partitionname", "x"}, {"nodename", "n"}}},
		{"include", "include  /etc/slurm/x.conf # y\nINCLUDE z", []pair{{"include", "/etc/slurm/x.conf"}, {"include", "z"}}},
		{"a key called include", "include=1", []pair{{"include", "1"}}},
		{"operator", "A+=1", []pair{{"a", "1"}}},
		{"junk between", "junk A=1 =2 -- B=3", []pair{{"a", "1"}, {"b", "3"}}},
		{"junk alone", "junk\tjunk\n\x00\xff\n", nil},
	} {
		if diff := cmp.Diff(test.want, parseConf([]byte(test.text))); diff != "" {
			t.Errorf("%s: %s", test.name, diff)
		}
	}
}

func FuzzParseConf(f *testing.F) {
	f.Add("A=1 b = \"x y\" # c\nInclude z\nNodeName=a CPUs=2 \\\n d=3")
	f.Add("JobAcctGatherParams=OverMemoryKill,UsePss\nJobAcctGatherFrequency=task=30,energy=1\nVSizeFactor=101")
	f.Fuzz(func(t *testing.T, text string) {
		for _, p := range parseConf([]byte(text)) {
			if p.Key == "" || p.Key != strings.ToLower(p.Key) || strings.ContainsAny(p.Key, " =#\t\n") {
				t.Errorf("key %q of %q", p.Key, text)
			}
			if strings.Contains(p.Value, "\n") {
				t.Errorf("value %q of %q", p.Value, text)
			}
		}
		// Whatever it says, it makes an Enforcement.
		conf, err := readConf("/slurm.conf", files{"/slurm.conf": text}.read)
		must(t, err)
		e := enforcement(conf.Get)
		if e.Interval < 0 || e.VSizeFactor < 0 {
			t.Errorf("%+v of %q", e, text)
		}
	})
}

// files are configuration files by their path; a text of "denied" cannot be
// read.
type files map[string]string

func (f files) read(name string) ([]byte, error) {
	text, ok := f[name]
	switch {
	case !ok:
		return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrNotExist}
	case text == "denied":
		return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrPermission}
	}
	return []byte(text), nil
}

func TestReadConf(t *testing.T) {
	conf, err := readConf("/etc/slurm/slurm.conf", files{
		"/etc/slurm/slurm.conf":  "ClusterName=lab\nA=1\nB=1\ninclude %c.conf\nInclude /abs.conf\nB=4\ninclude gone.conf\ninclude secret.conf",
		"/etc/slurm/lab.conf":    "A=2\nB=2\nC=2\ninclude deep.conf",
		"/etc/slurm/deep.conf":   "D=3",
		"/abs.conf":              "C=3",
		"/etc/slurm/secret.conf": "denied",
		"/etc/slurm/unused.conf": "A=9",
	}.read)
	must(t, err)
	for key, want := range map[string]string{"a": "2", "b": "4", "c": "3", "d": "3"} {
		if got, _ := conf.Get(key); got != want {
			t.Errorf("%s is %q, want %q", key, got, want)
		}
	}
	if want := []string{"/etc/slurm/gone.conf", "/etc/slurm/secret.conf"}; !slices.Equal(conf.Missing, want) {
		t.Errorf("missing %q, want %q", conf.Missing, want)
	}
}

// TestReadConfThatIncludesItself: once, and ten times on each of eight levels.
func TestReadConfThatIncludesItself(t *testing.T) {
	for _, times := range []int{1, 10} {
		read := 0
		conf, err := readConf("/s.conf", func(name string) ([]byte, error) {
			if read++; read > maxFiles {
				t.Fatal("does not end")
			}
			return []byte("A=1\n" + strings.Repeat("include s.conf\n", times)), nil
		})
		must(t, err)
		if got, _ := conf.Get("a"); got != "1" || len(conf.Missing) == 0 || len(conf.Missing) > maxFiles {
			t.Errorf("%d times: a is %q, %d missing", times, got, len(conf.Missing))
		}
	}
}

func TestReadFileOfAPipe(t *testing.T) {
	for _, name := range []string{t.TempDir(), os.DevNull, filepath.Join(t.TempDir(), "gone")} {
		if b, err := ReadFile(name); err == nil {
			t.Errorf("%s: %q, want an error", name, b)
		}
	}
	name := filepath.Join(t.TempDir(), "slurm.conf")
	must(t, os.WriteFile(name, []byte("A=1"), 0o600))
	if b, err := ReadFile(name); err != nil || string(b) != "A=1" {
		t.Errorf("%q, %v", b, err)
	}
}

func TestParseFrequency(t *testing.T) {
	for _, test := range []struct {
		text string
		want time.Duration
		ok   bool
	}{
		{"30", 30 * time.Second, true}, {"task=1", time.Second, true}, {"energy=5,Task = 7", 7 * time.Second, true},
		{"task=0", 0, true}, {"energy=5", 0, false}, {"", 0, false}, {"task=x", 0, false}, {"task=-1", 0, false},
		{"task=99999999999", 0, false},
	} {
		got, ok := parseFrequency(test.text)
		if got != test.want || ok != test.ok {
			t.Errorf("%q: %v, %v; want %v, %v", test.text, got, ok, test.want, test.ok)
		}
	}
}

func FuzzParseFrequency(f *testing.F) {
	f.Add("task=30,energy=1")
	f.Fuzz(func(t *testing.T, text string) {
		if d, ok := parseFrequency(text); d < 0 || !ok && d != 0 {
			t.Errorf("%q: %v, %v", text, d, ok)
		}
	})
}
