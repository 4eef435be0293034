package slurm

import (
	"context"
	"errors"
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

const killConf = "JobAcctGatherType=jobacct_gather/linux\nJobAcctGatherParams=OverMemoryKill\nJobAcctGatherFrequency=task=10\n" +
	"TaskPlugin=task/affinity,task/cgroup\nProctrackType=proctrack/cgroup\nSelectTypeParameters=CR_Core_Memory\n"

func TestFindEnforcement(t *testing.T) {
	const etc = "/etc/slurm/slurm.conf"
	kills := files{etc: killConf}
	lost := "slurm_load_ctl_conf error: Unable to contact slurm controller"
	for _, test := range []struct {
		name   string
		files  files
		conf   string // SLURM_CONF
		asked  string // what scontrol answers, if anything
		source string // none where it fails without any
		check  func(Enforcement) bool
	}{
		{"SLURM_CONF before the usual places",
			files{"/my/slurm.conf": killConf, "/my/cgroup.conf": "ConstrainRAMSpace=yes\nAllowedRAMSpace=90", etc: ""}, "/my/slurm.conf", "", "/my/slurm.conf",
			func(e Enforcement) bool {
				return e.Known && e.OverMemoryKill && e.Gather == "linux" && e.Interval == 10*time.Second && e.ConstrainRAM && e.SelectMemory && len(e.Open) == 0
			}},
		{"the copy of a configless slurmd", files{"/run/slurm/conf/slurm.conf": killConf}, "", "", "/run/slurm/conf/slurm.conf",
			func(e Enforcement) bool { return e.OverMemoryKill && !e.ConstrainRAM }},
		{"scontrol is not asked when the files say all", kills, "", "JobAcctGatherType = jobacct_gather/none\n", etc,
			func(e Enforcement) bool { return e.Gather == "linux" }},
		{"it kills, and the version decides who else does: scontrol --version", kills, "", "slurm-wlm 26.05.5\n", etc,
			func(e Enforcement) bool { kills, known := e.JobKill(); return e.Version == "26.05.5" && kills && known }},
		{"nothing kills: what is open does not matter", files{etc: "ClusterName=x"}, "", "JobAcctGatherType = jobacct_gather/none\n", etc,
			func(e Enforcement) bool {
				return e.Known && !e.OverMemoryKill && e.Interval == 30*time.Second && len(e.Open) == 4
			}},
		{"it kills by what the version decides: scontrol", files{etc: "JobAcctGatherParams=OverMemoryKill"}, "",
			"JobAcctGatherType = jobacct_gather/cgroup\nJobAcctGatherParams = OverMemoryKill\nVSizeFactor = 110 percent\n", "scontrol show config",
			func(e Enforcement) bool { return e.Gather == "cgroup" && e.OverMemoryKill && e.VSizeFactor == 110 }},
		{"an included file cannot be read: scontrol", files{etc: "include /secret", "/secret": "denied"}, "",
			"JobAcctGatherType = jobacct_gather/linux\nJobAcctGatherParams = OverMemoryKill\n", "scontrol show config",
			func(e Enforcement) bool { return e.OverMemoryKill }},
		{"an included file cannot be read, and no scontrol", files{etc: "include /secret", "/secret": "denied"}, "", "", etc,
			func(e Enforcement) bool { return strings.Contains(strings.Join(e.Open, ";"), "/secret") }},
		{"cgroup.conf cannot be read, and no scontrol", files{etc: killConf, "/etc/slurm/cgroup.conf": "denied"}, "", "", etc,
			func(e Enforcement) bool { return len(e.Open) == 1 && strings.Contains(e.Open[0], "cgroup.conf") }},
		{"scontrol fails: the files still count", files{etc: "JobAcctGatherParams=OverMemoryKill"}, "", lost, etc,
			func(e Enforcement) bool { return e.Known && e.OverMemoryKill && e.Gather == "" }},
		{"nothing at all", nil, "", "", "", func(e Enforcement) bool { return !e.Known }},
		{"denied", files{etc: "denied"}, "", "", "", func(e Enforcement) bool { return !e.Known }},
	} {
		search := Search{ReadFile: test.files.read}
		if test.asked != "" {
			search.Scontrol = func(context.Context, ...string) ([]byte, error) { return []byte(test.asked), nil }
		}
		e, err := FindEnforcement(t.Context(), Job{ConfFile: test.conf}, search)
		if fails := test.source == "" || test.asked == lost; (err != nil) != fails {
			t.Errorf("%s: error %v", test.name, err)
		}
		if e.Source != test.source || !test.check(e) {
			t.Errorf("%s: %+v", test.name, e)
		}
	}
	for words, want := range map[string]time.Duration{"SLURM_ACCTG_FREQ=task=2": 2 * time.Second, "SLURM_ACCTG_FREQ=often": 10 * time.Second} {
		if e, err := FindEnforcement(t.Context(), Job{}, Search{ReadFile: kills.read, Lookup: env(words)}); err != nil || e.Interval != want {
			t.Errorf("--acctg-freq of sbatch, %s: %v, %v", words, e.Interval, err)
		}
	}
	gone := errors.New("lost")
	_, err := FindEnforcement(t.Context(), Job{}, Search{
		ReadFile: files{}.read, Scontrol: func(context.Context, ...string) ([]byte, error) { return nil, gone },
	})
	if !errors.Is(err, errNoConfig) || !errors.Is(err, gone) {
		t.Errorf("error %v, want both", err)
	}
}

func TestSums(t *testing.T) {
	kill := Enforcement{Known: true, OverMemoryKill: true, Interval: time.Second, Gather: "linux"}
	for _, test := range []struct {
		name   string
		change func(*Enforcement)
		want   string
		byPPID bool
	}{
		{"linux", func(*Enforcement) {}, "rss", true},
		{"UsePss", func(e *Enforcement) { e.UsePss = true }, "pss", true},
		{"NoShared", func(e *Enforcement) { e.NoShared = true }, "noshared", true},
		{"cgroup ignores both", func(e *Enforcement) { e.Gather, e.UsePss = "cgroup", true }, "cgroup", false},
		{"not known", func(e *Enforcement) { e.Known = false }, "", false},
		{"kills nothing", func(e *Enforcement) { e.OverMemoryKill = false }, "", false},
		{"gathers nothing", func(e *Enforcement) { e.Gather = "none" }, "", false},
		{"no memory to compare with", func(e *Enforcement) { e.SelectTypeParameters = "CR_Core" }, "", false},
		{"polls when asked", func(e *Enforcement) { e.Interval = 0 }, "rss", true},
	} {
		e := kill
		test.change(&e)
		if got, byPPID := e.Sums(); got != test.want || byPPID != test.byPPID {
			t.Errorf("%s: %q, %v; want %q, %v", test.name, got, byPPID, test.want, test.byPPID)
		}
	}
}

func TestEnforcementString(t *testing.T) {
	for want, e := range map[string]Enforcement{
		"not known": {},
		"slurmstepd kills on summed pss when it is asked (/s.conf)": {Known: true, OverMemoryKill: true, UsePss: true, Gather: "linux", Source: "/s.conf"},
		"slurmstepd kills on summed rss every 10s (/s.conf)":        {Known: true, OverMemoryKill: true, Gather: "linux", Interval: 10 * time.Second, Source: "/s.conf"},
		"the kernel's OOM killer, by the cgroup's limit (/s.conf)":  {Known: true, ConstrainRAM: true, Source: "/s.conf"},
		"nothing enforces memory (scontrol show config)":            {Known: true, Source: "scontrol show config"},
		"the kernel's OOM killer, by the cgroup's limit (/t.conf)":  {Known: true, ConstrainSwap: true, Source: "/t.conf"},
		"nothing enforces memory: SelectTypeParameters=CR_Core leaves it out (/s.conf)": {
			Known: true, OverMemoryKill: true, Gather: "linux", SelectTypeParameters: "CR_Core", Source: "/s.conf"},
	} {
		if got := e.String(); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

func TestParseShowConfig(t *testing.T) {
	got, err := ParseShowConfig([]byte(`Configuration data as of 2026-11-20T15:00:00
AccountingStorageBackupHost = (null)
BOOT_TIME               = 2026-11-20T14:00:00
JobAcctGatherFrequency  = task=1
JobAcctGatherType       = jobacct_gather/linux
JobAcctGatherParams     = OverMemoryKill
SLURM_VERSION           = 22.05.8
VSizeFactor             = 0 percent

Cgroup Support Configuration:
AllowedRAMSpace         = 100.0%
ConstrainRAMSpace       = yes

Slurmctld(primary) at vm is UP
`))
	must(t, err)
	for key, want := range map[string]string{
		"jobacctgatherfrequency": "task=1", "slurm_version": "22.05.8", "accountingstoragebackuphost": "",
		"allowedramspace": "100.0%", "constrainramspace": "yes",
	} {
		if got[key] != want {
			t.Errorf("%s is %q, want %q", key, got[key], want)
		}
	}
	if _, err := ParseShowConfig([]byte("slurm_load_ctl_conf error\n")); err == nil {
		t.Error("an error message was taken for a configuration")
	}
}

func FuzzParseShowConfig(f *testing.F) {
	f.Add("JobAcctGatherType = jobacct_gather/linux\nA = (null)\n B=C=D\n")
	f.Fuzz(func(t *testing.T, text string) {
		values, err := ParseShowConfig([]byte(text))
		if err != nil && values != nil {
			t.Errorf("both %v and %v", values, err)
		}
		for key := range values {
			if key == "" || strings.ContainsAny(key, " \t\n") {
				t.Errorf("key %q", key)
			}
		}
	})
}

func TestScontrol(t *testing.T) {
	dir := t.TempDir()
	program := filepath.Join(dir, "scontrol")
	script := "#!/bin/sh\necho 'invalid entity' >&2; [ $1 != show ] || [ $2 = config ] && echo $1 $2\n"
	must(t, os.WriteFile(program, []byte(script), 0o755))
	t.Setenv("PATH", dir+":/usr/bin:/bin")
	if out, err := Scontrol(t.Context(), "show", "config"); err != nil || string(out) != "show config\n" {
		t.Errorf("%q, %v", out, err)
	}
	if _, err := Scontrol(t.Context(), "show", "junk"); err == nil || !strings.Contains(err.Error(), "invalid entity") {
		t.Errorf("error %v, want scontrol's own words", err)
	}
	if _, err := Scontrol(t.Context(), "update", "x"); err == nil || !strings.Contains(err.Error(), "invalid entity") {
		t.Errorf("error %v, want what a command that changes something says", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Scontrol(ctx, "show", "config"); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v, want that of the context", err)
	}
}

// TestTimesAsRead: how a user likes to see times does not keep the job's end from being
// read.
func TestTimesAsRead(t *testing.T) {
	dir := t.TempDir()
	// As scontrol does (scontrol(1), SLURM_TIME_FORMAT).
	script := `#!/bin/sh
case "$SLURM_TIME_FORMAT" in
""|standard) end=2026-11-20T11:30:00 ;;
relative) end=11:30:00 ;;
*) end=$(date -d '2026-11-20 11:30' "+$SLURM_TIME_FORMAT") ;;
esac
echo "JobId=46 JobName=a JobState=RUNNING EndTime=$end Deadline=N/A"
`
	must(t, os.WriteFile(filepath.Join(dir, "scontrol"), []byte(script), 0o755))
	t.Setenv("PATH", dir+":/usr/bin:/bin")
	for _, format := range []string{"", "standard", "relative", "%a %H:%M"} {
		t.Setenv("SLURM_TIME_FORMAT", format)
		end, err := FindEnd(t.Context(), Job{ID: "46"}, Scontrol)
		if want := time.Date(2026, 11, 20, 11, 30, 0, 0, time.Local); err != nil || !end.Equal(want) {
			t.Errorf("%q: end %v, %v, want %v", format, end, err, want)
		}
	}
}
