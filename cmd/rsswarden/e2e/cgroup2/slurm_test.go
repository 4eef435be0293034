package cgroup2

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/rss/rsstest"
	"github.com/rsswarden/rsswarden/rss/rsstest/debian"
	"github.com/rsswarden/rsswarden/rss/rsstest/guest"
	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/wardentest"
)

const slurmInGuest = "CGROUP2_TEST_SLURM" // the version of Slurm

// A case is of the versions of Slurm that it names, or of all. What is the same with two has
// one of them, and both with RSSWARDEN_ENDURANCE.
var slurmCases = []struct {
	name     string
	run      func(*testing.T)
	versions string
}{
	{"Bare", slurmBare, []string{"22.05", "22.05 24.11"}[wardentest.Few(1, 0)]},
	{"Killed", slurmKilled, ""},
	{"Stopped", slurmStopped, []string{"24.11", "22.05 24.11"}[wardentest.Few(1, 0)]},
	{"Step", slurmStep, ""},
	{"HugePages", slurmHugePages, "22.05"}, // counted twice up to 23.02.5
	{"JobSum", slurmJobSum, "26.05"},       // kills from 26.05.3 on
}

// slurmGuests are the versions of Slurm and the kernels that they run on.
var slurmGuests = []struct {
	version, kernel string
	suite           debian.Suite // empty for this machine's
}{
	{"22.05", "6.1", ""},
	{"24.11", "6.12", debian.Trixie},
	{"26.05", "6.12", debian.Sid},
}

// TestWorksWith holds the README's row on Slurm on cgroup v2 against what [TestSlurm] runs.
func TestWorksWith(t *testing.T) {
	var list []string
	for _, s := range slurmGuests {
		cmd := exec.Command("slurmd", "-V")
		if s.suite != "" {
			cmd = debian.Need(t, s.suite).Command("slurmd", "-V")
		}
		out, err := cmd.Output()
		if err != nil {
			t.Skip("no Slurm: ", err)
		}
		_, version, _ := strings.Cut(strings.TrimSpace(string(out)), " ") // slurm-wlm 26.05.5
		list = append(list, version[:strings.LastIndex(version, ".")]+" on Linux "+s.kernel)
	}
	rsstest.WorksWith(t, "Slurm, cgroup v2", list)
}

// TestSlurm runs a real Slurm in a guest: this machine's on the kernel of its
// release, Debian 13's on that of its own, and Debian sid's on the newest there is.
func TestSlurm(t *testing.T) {
	if version := os.Getenv(slurmInGuest); version != "" {
		for _, c := range slurmCases {
			if strings.Contains(c.versions, version) || c.versions == "" {
				t.Run(c.name, c.run)
			}
		}
		return
	}
	tests, program := guest.TestBinary(t), wardentest.Program(t, wardentest.Static)
	for _, s := range slurmGuests {
		root := "/"
		if s.suite != "" {
			root = debian.Need(t, s.suite).Path("/")
		}
		t.Run(s.version, func(t *testing.T) {
			files := slurmFiles(t, root)
			files["/guest/rsswarden"] = program
			out, exit := guest.Run(t, guest.Options{
				Kernel: s.kernel, Binary: tests, Args: []string{"-test.run=^TestSlurm$", "-test.v"},
				Env: guestEnv(slurmInGuest, s.version), Files: files, DiskMB: 300, MemMB: 1024, Timeout: guestTime,
			})
			for _, c := range slurmCases {
				if strings.Contains(c.versions, s.version) || c.versions == "" {
					t.Run(c.name, func(t *testing.T) { judge(t, out, "TestSlurm/"+c.name) })
				}
			}
			if exit != 0 && !t.Failed() {
				t.Errorf("in the guest: status %d\n%s", exit, out)
			}
		})
	}
}

// slurmFiles are the programs and plugins of a Slurm, each at its own path.
func slurmFiles(t *testing.T, root string) map[string]string {
	t.Helper()
	const plugins = "/usr/lib/x86_64-linux-gnu/slurm-wlm"
	names := []string{"/usr/sbin/munged", "/usr/sbin/slurmctld", "/usr/sbin/slurmd", "/usr/sbin/slurmstepd", "/usr/bin/sbatch", "/usr/bin/srun", "/usr/bin/scontrol"}
	all, err := filepath.Glob(filepath.Join(root, plugins, "*.so"))
	if err != nil || len(all) == 0 {
		t.Fatal(all, err)
	}
	for _, file := range all {
		name := filepath.Base(file)
		switch kind, _, _ := strings.Cut(strings.TrimSuffix(name, ".so"), "_"); {
		case strings.HasSuffix(name, "_none.so"), kind == "hash", kind == "topology", kind == "certgen", kind == "certmgr", kind == "http", kind == "serializer",
			strings.Contains(" mpi_pmi2.so gpu_generic.so auth_munge.so cred_munge.so cgroup_v2.so jobacct_gather_cgroup.so proctrack_cgroup.so task_cgroup.so "+
				"select_cons_tres.so sched_builtin.so sched_backfill.so priority_basic.so priority_multifactor.so route_default.so launch_slurm.so prep_script.so ", " "+name+" "):
			names = append(names, plugins+"/"+name)
		}
	}
	files := map[string]string{}
	wardentest.NoError(t, guest.AddDynamic(files, root, names...))
	return files
}

const (
	slurmDir = "/disk/slurm"
	slice    = "/sys/fs/cgroup/system.slice"
)

// slurmConf has what a site has that lets the kernel limit memory by cgroups, and with
// overKill one that has Slurm do so. slurmctld pings the node at two thirds of
// SlurmdTimeout, at the latest. A guest on a busy machine takes long to say how a job ended:
// KillWait is time for it.
const slurmConf = `ClusterName=guest
SlurmctldHost=n1(10.99.0.1)
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket=` + slurmDir + `/munge/socket
CredType=cred/munge
SlurmctldPidFile=` + slurmDir + `/slurmctld.pid
SlurmdPidFile=` + slurmDir + `/slurmd.pid
SlurmctldLogFile=` + slurmDir + `/slurmctld.log
SlurmdLogFile=` + slurmDir + `/slurmd.log
StateSaveLocation=` + slurmDir + `/state
SlurmdSpoolDir=` + slurmDir + `/spool
SlurmdDebug=debug
SlurmdParameters=config_overrides
ProctrackType=proctrack/cgroup
TaskPlugin=task/cgroup
JobAcctGatherType=jobacct_gather/cgroup
JobAcctGatherFrequency=task=1
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
DefMemPerCPU=256
AccountingStorageType=accounting_storage/none
MpiDefault=none
SwitchType=switch/none
ReturnToService=2
KillWait=60
SchedulerParameters=batch_sched_delay=0,sched_min_interval=0,bf_interval=1
PropagateResourceLimits=NONE
MailProg=/bin/true
NodeName=n1 NodeAddr=10.99.0.1 CPUs=2 RealMemory=4000 State=UNKNOWN
PartitionName=debug Nodes=n1 Default=YES MaxTime=60 State=UP
`

// No systemd is in the guest, whose slice is made here.
const cgroupConf = `CgroupPlugin=cgroup/v2
IgnoreSystemd=yes
ConstrainRAMSpace=yes
ConstrainSwapSpace=yes
AllowedSwapSpace=0
MinRAMSpace=30
`

// overKill and unconstrained are what a site adds that has slurmstepd and slurmd kill.
const (
	overKill      = "JobAcctGatherParams=OverMemoryKill\nSlurmdTimeout=12\n"
	unconstrained = "CgroupPlugin=cgroup/v2\nIgnoreSystemd=yes\n"
)

func shell(t *testing.T, script string) {
	t.Helper()
	if out, err := exec.Command("/bin/sh", "-ec", script).CombinedOutput(); err != nil {
		t.Fatalf("%s: %v: %s", script, err, out)
	}
}

var (
	slurmRuns, logged bool
	slurmKills        bool // it was started with overKill
	daemons           = map[string]*exec.Cmd{}
)

// slurm starts it, once in a guest, which ends with it.
func slurm(t *testing.T) {
	t.Helper()
	t.Cleanup(func() {
		if t.Failed() && !logged {
			logged = true
			t.Log(scontrol("show", "node", "n1"))
			for _, name := range []string{"slurmctld.log", "slurmd.log", "slurmd.out", "munged.out"} {
				b, _ := os.ReadFile(filepath.Join(slurmDir, name))
				t.Logf("%s:\n%s", name, b[max(0, len(b)-6000):])
			}
		}
	})
	if slurmRuns {
		return
	}
	if _, err := os.Stat(slurmDir); err == nil {
		t.Fatal("Slurm does not work")
	}
	shell(t, `
mkdir -p `+slurmDir+`/munge `+slurmDir+`/state `+slurmDir+`/spool /etc/slurm /run /var/log /var/run /var/spool
chmod 755 /disk `+slurmDir+`
hostname n1
ip addr add 10.99.0.1/24 dev lo
echo "127.0.0.1 localhost
10.99.0.1 n1" >/etc/hosts
echo "passwd: files
group: files
hosts: files" >/etc/nsswitch.conf
echo "root:*:19000:0:99999:7:::
user:*:19000:0:99999:7:::" >/etc/shadow
dd if=/dev/urandom of=`+slurmDir+`/munge/key bs=128 count=1 2>/dev/null
chmod 400 `+slurmDir+`/munge/key
mkdir `+slice+`
echo "+memory +pids +cpu +cpuset" >/sys/fs/cgroup/cgroup.subtree_control
echo "+memory +pids +cpu +cpuset" >`+slice+`/cgroup.subtree_control
mkdir `+slice+`/slurmd.service
ln -sf /proc/self/fd /dev/fd
mkdir -p /dev/shm; mount -t tmpfs shm /dev/shm
`)
	m := slurmDir + "/munge"
	daemon(t, "munged", "", "/usr/sbin/munged", "--foreground", "--force", "--key-file="+m+"/key", "--socket="+m+"/socket",
		"--pid-file="+m+"/pid", "--log-file="+m+"/log", "--seed-file="+m+"/seed", "--num-threads=2")
	wardentest.Until(t, "munged", func() bool { _, err := os.Stat(m + "/socket"); return err == nil })
	startSlurm(t, slurmConf, cgroupConf)
}

// killing restarts Slurm with the configuration of a site where slurmstepd and slurmd kill.
func killing(t *testing.T) {
	t.Helper()
	slurm(t)
	if slurmKills {
		return
	}
	for _, name := range []string{"slurmd", "slurmctld"} {
		wardentest.NoError(t, daemons[name].Process.Kill())
		_ = daemons[name].Wait()
	}
	slurmRuns, slurmKills = false, true
	startSlurm(t, slurmConf+overKill, unconstrained)
}

func startSlurm(t *testing.T, slurmConf, cgroupConf string) {
	t.Helper()
	for name, text := range map[string]string{"slurm.conf": slurmConf, "cgroup.conf": cgroupConf} {
		wardentest.NoError(t, os.WriteFile("/etc/slurm/"+name, []byte(text), 0o644))
	}
	daemon(t, "slurmctld", "", "/usr/sbin/slurmctld", "-D", "-c")
	// slurmd waits longer and longer for one that is not there.
	wardentest.Until(t, "slurmctld", func() bool { return strings.Contains(scontrol("ping"), "is UP") })
	daemon(t, "slurmd", slice+"/slurmd.service", "/usr/sbin/slurmd", "-D", "-N", "n1")
	wardentest.Until(t, "an idle node", func() bool {
		return strings.Contains(scontrol("show", "node", "n1"), "State=IDLE ")
	})
	slurmRuns = true
}

// daemon starts one that lives as long as the guest.
func daemon(t *testing.T, name, cgroup string, args ...string) {
	t.Helper()
	out, err := os.OpenFile(filepath.Join(slurmDir, name+".out"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	wardentest.NoError(t, err)
	defer out.Close()
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Env = []string{"PATH=/usr/bin:/usr/sbin:/bin", "LANG=C.UTF-8"}
	cmd.Stdout, cmd.Stderr = out, out
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if cgroup != "" {
		dir, err := os.Open(cgroup)
		wardentest.NoError(t, err)
		defer dir.Close()
		cmd.SysProcAttr.UseCgroupFD, cmd.SysProcAttr.CgroupFD = true, int(dir.Fd())
	}
	wardentest.NoError(t, cmd.Start())
	daemons[name] = cmd
}

func scontrol(args ...string) string {
	out, _ := exec.Command("/usr/bin/scontrol", args...).CombinedOutput()
	return string(out)
}

// ended is a job of which Slurm knows the end.
type ended struct {
	t     *testing.T
	id    string
	state string
	exit  string // status and signal: "137:0"
	out   string // what it printed
	dir   string // where its records lie
}

// job runs a batch script as a user, with a limit of 100 MiB, or by the options.
func job(t *testing.T, script string, options ...string) *ended {
	t.Helper()
	slurm(t)
	dir, err := os.MkdirTemp("/disk", "job")
	wardentest.NoError(t, err)
	wardentest.NoError(t, os.Chown(dir, user, user))
	cmd := exec.Command("/usr/bin/sbatch", append([]string{"--parsable", "-n1", "--mem=100M", "-D", dir, "-o", dir + "/out"}, options...)...)
	cmd.Stdin = strings.NewReader("#!/bin/sh\n" + script)
	cmd.Env = []string{"PATH=/usr/bin:/bin", "HOME=/tmp", "XDG_STATE_HOME=" + dir, "RSSWARDEN_RECORD=" + dir + "/records", "RSSTEST_EATER=1"}
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: user, Gid: user}}
	id, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, id)
	}
	e := &ended{t: t, id: strings.TrimSpace(string(id)), dir: dir}
	says := regexp.MustCompile(`(?s) JobState=(COMPLETED|FAILED|OUT_OF_MEMORY|CANCELLED|TIMEOUT|NODE_FAIL) .* ExitCode=(\S+)`)
	said := ""
	slurmRuns = false // unless it ends: what comes next would not either
	wardentest.Until(t, "end of the job", func() bool {
		said = scontrol("show", "job", e.id)
		m := says.FindStringSubmatch(said)
		if m != nil {
			e.state, e.exit = m[1], m[2]
		}
		return m != nil
	})
	slurmRuns = true
	b := wardentest.ReadFile(t, dir+"/out")
	e.out = string(b)
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("%s\n%s", said, b)
		}
	})
	return e
}

// want fails the test unless the job ended so.
func (e *ended) want(state, exit string) {
	e.t.Helper()
	if e.state != state || exit != "" && e.exit != exit {
		e.t.Errorf("job %s is %s, %s, want %s, %s", e.id, e.state, e.exit, state, exit)
	}
}

// says looks for words in what it printed.
func (e *ended) says(words string) {
	e.t.Helper()
	if !regexp.MustCompile(words).MatchString(e.out) {
		e.t.Errorf("not said: %s", words)
	}
}

// paced is a script in which an eater takes 10 MiB after another, so many times,
// started by a command. It begins where rsswarden says that it watches, if that is
// asked for, and goes slowly where rungs are: what is to be told of comes in time
// on a busy machine too.
func paced(command string, times int) string {
	begin, slowly := ":", "0.4"
	if command != "" {
		begin, slowly = `until grep -q watching out; do sleep 0.1; done`, "2"
	}
	return fmt.Sprintf(`(%s; i=0; while [ $i -lt %d ]; do echo "anon %d"; sleep 0.1; [ $i -lt 6 ] || sleep %s; i=$((i+1)); done) | %s /guest/program`+"\n",
		begin, times, 10*rss.MiB, slowly, command)
}

// directory matches the name of a job's directory: from 26.05 on its SLUID.
func (e *ended) directory() string {
	if os.Getenv(slurmInGuest) == "26.05" {
		return "s[0-9A-HJKMNP-TV-Z]{13}"
	}
	return "job_" + e.id
}

// slurmBare: what is killed without us is killed by the limit of --mem.
func slurmBare(t *testing.T) {
	job(t, paced("", 20)).want("OUT_OF_MEMORY", "")
	job(t, paced("", 5)).want("COMPLETED", "0:0")
}

// slurmKilled: rungs are told of before the kernel kills, Slurm's word for the
// end is as it is bare, and the report names the limit of --mem.
func slurmKilled(t *testing.T) {
	e := job(t, paced(program+" run --", 20))
	e.want("OUT_OF_MEMORY", "")
	e.says(`limit 100 MiB, .*: cgroup, the kernel kills at it`)
	e.says(`[89]\d % of 100 MiB`)
	// The watcher may be among the killed: the record tells all the same. Job and step have the
	// same limit, and the kernel takes either for the full one.
	r := &run{t: t, dir: e.dir}
	r.reports("'s limit, 100M)")
}

// slurmStopped: a rule ends the command before the kernel does.
func slurmStopped(t *testing.T) {
	e := job(t, paced(program+" run --at 80%:stop --", 20))
	e.want("FAILED", "137:0")
	e.says("stopped by rule 80%:stop")
}

// slurmStep: in a step each level is named for what it is.
func slurmStep(t *testing.T) {
	e := job(t, "unset RSSTEST_EATER; "+program+" limits; srun "+program+" limits --json\n")
	e.want("COMPLETED", "0:0")
	e.says("Slurm job " + e.id + `\.batch`)
	var asked struct{ Limits []event.Limit }
	// srun may have something to say after it.
	if err := json.NewDecoder(strings.NewReader(e.out[strings.Index(e.out, "{"):])).Decode(&asked); err != nil {
		t.Fatalf("%v\n%s", err, e.out)
	}
	of := map[event.Scope]*event.Limit{}
	for i := range asked.Limits {
		if l := &asked.Limits[i]; l.Name == event.LimitCgroup {
			of[l.Scope] = l
		}
	}
	whole := of[event.ScopeJob]
	if whole == nil || whole.Limit != 100*rss.MiB || !whole.Binding && (of[event.ScopeStep] == nil || !of[event.ScopeStep].Binding) ||
		!regexp.MustCompile("^"+slice+"/n1_slurmstepd.scope/"+e.directory()+"$").MatchString(whole.Level) {
		t.Errorf("%+v", asked.Limits)
	}
	if step := of[event.ScopeStep]; step != nil && !strings.HasPrefix(step.Level, whole.Level+"/step_0") {
		t.Errorf("%+v", step)
	}
	for _, l := range asked.Limits {
		if l.Name == event.LimitSlurm {
			t.Errorf("only the kernel kills here: %+v", l)
		}
	}
}

// slurmHugePages: where slurmstepd counts anonymous huge pages twice, what it compares is
// what we show.
func slurmHugePages(t *testing.T) {
	shell(t, "echo always >/sys/kernel/mm/transparent_hugepage/enabled")
	killing(t)
	job(t, held(100, 90), "--mem=150M").want("FAILED", "0:9")
	// It is held until we say so: that asks slurmctld for its version, which may take 20 s.
	e := job(t, "RSSWARDEN_EVENTS=$PWD/events "+program+` run -- /bin/sh -c '
		(echo "anon 104857600"; i=0; while [ $i -lt 90 ] && ! grep -qsE "\"limit\":\"slurm\"[^}]*\"used_bytes\":(1[89]|2.)[0-9]{7}[^0-9]" events; do i=$((i+1)); sleep 1; done; sleep 3) |
		/guest/program'
`, "--mem=400M")
	e.want("COMPLETED", "0:0")
	var stepd, ours rss.Bytes
	b := wardentest.ReadFile(t, filepath.Join(slurmDir, "slurmd.log"))
	for _, m := range regexp.MustCompile(`StepId=`+e.id+`\.batch memory used:(\d+)`).FindAllStringSubmatch(string(b), -1) {
		n, _ := strconv.ParseUint(m[1], 10, 64)
		stepd = max(stepd, rss.Bytes(n))
	}
	r := &run{t: t, dir: e.dir}
	for _, l := range r.events(event.NameSample) {
		var s event.Sample
		r.read(l.text, &s)
		for i := range s.Limits {
			if s.Limits[i].Name == event.LimitSlurm {
				ours = max(ours, s.Limits[i].Used)
			}
		}
	}
	if stepd < 180*rss.MiB || ours < stepd-8*rss.MiB || ours > stepd+8*rss.MiB {
		t.Errorf("100 MiB of huge pages: slurmstepd has %v, we %v", stepd, ours)
	}
}

// held is a command of one line that takes so many MiB and holds them for so many seconds.
func held(mib, seconds int) string {
	return fmt.Sprintf(`(echo "anon %d"; sleep %d) | /guest/program`, mib<<20, seconds)
}

// slurmJobSum: two steps that are each below the job's memory, and above it together.
func slurmJobSum(t *testing.T) {
	killing(t)
	e := job(t, "exec "+program+" run -- /bin/sh -c '"+held(90, 60)+" & "+
		strings.Replace(held(90, 60), "|", "| srun --overlap", 1)+"; wait'\n", "--mem=200M")
	e.want("CANCELLED", "")
	wardentest.Until(t, "the summary", func() bool {
		b, _ := os.ReadFile(e.dir + "/out")
		e.out = string(b)
		return strings.Contains(e.out, "Slurm killed the job")
	})
	e.says("out of memory: Slurm killed the job")
}
