package cgroup2

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/supervisor/event"
)

const (
	slurmDir = "/disk/slurm"
	slice    = "/sys/fs/cgroup/system.slice"
)

// slurmConf has what a site has that lets the kernel limit memory by cgroups.
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

func shell(t *testing.T, script string) {
	t.Helper()
	if out, err := exec.Command("/bin/sh", "-ec", script).CombinedOutput(); err != nil {
		t.Fatalf("%s: %v: %s", script, err, out)
	}
}

// startSlurm starts it once in a guest, which ends with it.
var startSlurm = sync.OnceFunc(func() {})

func slurm(t *testing.T) {
	t.Helper()
	t.Cleanup(func() {
		if t.Failed() {
			for _, name := range []string{"slurmctld.log", "slurmd.log", "slurmd.out", "munged.out"} {
				b, _ := os.ReadFile(filepath.Join(slurmDir, name))
				t.Logf("%s:\n%s", name, b[max(0, len(b)-6000):])
			}
		}
	})
	if _, err := os.Stat(slurmDir); err == nil {
		return
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
	for name, text := range map[string]string{"slurm.conf": slurmConf, "cgroup.conf": cgroupConf} {
		if err := os.WriteFile("/etc/slurm/"+name, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	m := slurmDir + "/munge"
	daemon(t, "munged", "", "/usr/sbin/munged", "--foreground", "--force", "--key-file="+m+"/key", "--socket="+m+"/socket",
		"--pid-file="+m+"/pid", "--log-file="+m+"/log", "--seed-file="+m+"/seed", "--num-threads=2")
	until(t, "munged", func() bool { _, err := os.Stat(m + "/socket"); return err == nil })
	daemon(t, "slurmctld", "", "/usr/sbin/slurmctld", "-D", "-c")
	daemon(t, "slurmd", slice+"/slurmd.service", "/usr/sbin/slurmd", "-D", "-N", "n1")
	until(t, "an idle node", func() bool {
		return strings.Contains(scontrol("show", "node", "n1"), "State=IDLE ")
	})
}

// daemon starts one that lives as long as the guest.
func daemon(t *testing.T, name, cgroup string, args ...string) {
	t.Helper()
	out, err := os.Create(filepath.Join(slurmDir, name+".out"))
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Env = []string{"PATH=/usr/bin:/usr/sbin:/bin", "LANG=C"}
	cmd.Stdout, cmd.Stderr = out, out
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if cgroup != "" {
		dir, err := os.Open(cgroup)
		if err != nil {
			t.Fatal(err)
		}
		defer dir.Close()
		cmd.SysProcAttr.UseCgroupFD, cmd.SysProcAttr.CgroupFD = true, int(dir.Fd())
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() { _ = cmd.Wait() }()
}

func until(t *testing.T, what string, is func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !is(); time.Sleep(50 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("there is no %s", what)
		}
	}
}

func scontrol(args ...string) string {
	out, _ := exec.Command("/usr/bin/scontrol", args...).CombinedOutput()
	return string(out)
}

// job runs a batch script as a user and returns what Slurm says of its end, and
// what it printed.
func job(t *testing.T, script string) (said, printed string) {
	t.Helper()
	slurm(t)
	dir, err := os.MkdirTemp("/disk", "job")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Chown(dir, user, user); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("/usr/bin/sbatch", "--parsable", "-n1", "-D", dir, "-o", dir+"/out")
	cmd.Stdin = strings.NewReader("#!/bin/sh\nexport XDG_STATE_HOME=" + dir + "\n" + script)
	cmd.Env = []string{"PATH=/usr/bin:/bin", "HOME=/tmp"}
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: user, Gid: user}}
	id, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, id)
	}
	ended := regexp.MustCompile(`JobState=(COMPLETED|FAILED|OUT_OF_MEMORY|CANCELLED|TIMEOUT|NODE_FAIL) `)
	until(t, "end of the job", func() bool {
		said = scontrol("show", "job", strings.TrimSpace(string(id)))
		return ended.MatchString(said)
	})
	b, err := os.ReadFile(dir + "/out")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("%s\n%s", said, b)
		}
	})
	return said, string(b)
}

// pacedEater is a command that takes 10 MiB after another, so many times.
func pacedEater(command string, times int) string {
	return fmt.Sprintf(`#SBATCH --mem=100M
cat /proc/self/cgroup
(i=0; while [ $i -lt %d ]; do echo "anon %d"; sleep 0.2; i=$((i+1)); done) | RSSTEST_EATER=1 %s /guest/program
`, times, 10*rss.MiB, command)
}

func slurmKilled(t *testing.T) {
	said, printed := job(t, pacedEater("", 20))
	t.Log(said, printed)
	said, printed = job(t, pacedEater(program+" run --", 20))
	t.Log(said, printed)
	out, _ := exec.Command("/bin/sh", "-c", "find /sys/fs/cgroup/system.slice -name 'job_*'; tail -30 /disk/slurm/slurmd.log").CombinedOutput()
	t.Logf("%s", out)
	t.Error(event.VerdictOOM)
}
