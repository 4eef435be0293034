package cgroup2

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/rsswarden/rsswarden/supervisor/wardentest"
)

const (
	slurmDir = "/disk/slurm"
	slice    = "/sys/fs/cgroup/system.slice"
)

// slurmConf has what a site has that lets the kernel limit memory by cgroups, and with
// overKill one that has Slurm do so. slurmctld pings the node at two thirds of
// SlurmdTimeout, at the latest.
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
KillWait=5
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
	cmd.Env = []string{"PATH=/usr/bin:/usr/sbin:/bin", "LANG=C"}
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
