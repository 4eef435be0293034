package torch

import (
	"bytes"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/rsswarden/rsswarden/rss"
	"github.com/rsswarden/rsswarden/rss/rsstest/debian"
	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/wardentest"
)

// torches are the versions of PyTorch that rsswarden is claimed for. command
// makes a command out of a program and its arguments where the version is.
var torches = []struct {
	name    string
	command func(t *testing.T) func(name string, args ...string) *exec.Cmd
	// torchrun's own options.
	options func(t *testing.T) []string
}{
	{"1.13", func(t *testing.T) func(string, ...string) *exec.Cmd { wardentest.NeedTorch(t); return exec.Command }, torchrun113},
	{"2.6", func(t *testing.T) func(string, ...string) *exec.Cmd { return debian.Need(t, debian.Trixie).Command }, torchrun26},
	{"of sid", func(t *testing.T) func(string, ...string) *exec.Cmd { return debian.Need(t, debian.Sid).Command }, torchrun26},
}

// torchrun113: the torchrun of Debian 12 is older than its Python and reads the
// default of --redirects and --tee as nothing; there is no rank 9.
func torchrun113(t *testing.T) []string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	wardentest.NoError(t, err)
	defer l.Close()
	port := strconv.Itoa(l.Addr().(*net.TCPAddr).Port)
	return []string{"--master_addr", "127.0.0.1", "--master_port", port, "--redirects", "9:1", "--tee", "9:1"}
}

// torchrun26: those of Debian 13 and of sid are built without libuv, and their
// agents want it for a store over TCP.
func torchrun26(t *testing.T) []string {
	return []string{"--rdzv_backend", "c10d", "--rdzv_endpoint", filepath.Join(t.TempDir(), "store"),
		"--rdzv_conf", "store_type=file", "--local_addr", "127.0.0.1"}
}

// Neither uses --standalone: it asks for the name of the node, and waits where
// no server answers.

// ranked is a training of two ranks with two loader workers each.
type ranked struct {
	t       *testing.T
	command func(name string, args ...string) *exec.Cmd
	torch   int      // index in torches
	script  []string // what every rank runs
	dir     string
}

func newRanked(t *testing.T, n int) *ranked {
	r := &ranked{t: t, torch: n, command: torches[n].command(t), dir: t.TempDir()}
	script, err := filepath.Abs("../../../../examples/train/ddp.py")
	wardentest.NoError(t, err)
	r.script = []string{script, "--data", filepath.Join(r.dir, "lmdb"), "--records", "600", "--record-bytes", "16384",
		"--epochs", "8", "--workers", "2"}
	return r
}

// run trains under rsswarden and returns what was printed and the events.
func (r *ranked) run(options []string, training ...string) (out string, all wardentest.Log) {
	r.t.Helper()
	file := filepath.Join(r.dir, "events")
	os.Remove(file)
	args := append([]string{"run", "--events", file, "--interval", "200ms"}, options...)
	cmd := r.command(binary, slices.Concat(args, []string{"--"}, torchrun(r.t, r.torch), r.script, training)...)
	cmd.Env = rankEnv(r.dir)
	out, errs, err := wardentest.Run(cmd)
	if err != nil {
		r.t.Fatalf("%v\n%s\n%s", err, out, errs)
	}
	r.t.Log(errs)
	return out, wardentest.ReadLog(r.t, file)
}

// torchrun is its command line for two ranks of this node.
func torchrun(t *testing.T, n int, options ...string) []string {
	return slices.Concat([]string{python, "-m", "torch.distributed.run", "--nnodes", "1", "--nproc_per_node", "2"},
		torches[n].options(t), options)
}

// rankEnv is for torchrun and its ranks.
func rankEnv(dir string) []string {
	return append(os.Environ(), "OMP_NUM_THREADS=1", "USE_LIBUV=0", "TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1", "GLOO_SOCKET_IFNAME=lo", "PYTHONWARNINGS=ignore", "PYTHONDONTWRITEBYTECODE=1", "TMPDIR="+dir, "XDG_CACHE_HOME="+dir)
}

// TestRanks has one rsswarden around torchrun: every process has its role,
// every rank its loaders; workers of both are replaced, one at a time; signals
// reach the ranks that are meant, and never torchrun; and what is trained is
// what is trained without. On the newest torch, and on all with RSSWARDEN_ENDURANCE.
func TestRanks(t *testing.T) {
	t.Parallel()
	for n, torch := range torches {
		if n < len(torches)-1 && wardentest.Few(1, 0) == 0 {
			continue
		}
		t.Run("torch "+torch.name, func(t *testing.T) {
			t.Parallel()
			r := newRanked(t, n)
			out, all := r.run([]string{"--accounting", "noshared", "--limit", "100G"})
			want := wardentest.Checksum(out)
			if want == "none" {
				t.Fatalf("no checksum:\n%s", out)
			}
			r.roles(all)
			peaks := all.Of(event.NameExit)[0]["peaks"].(map[string]any)
			base := rss.Bytes(peaks["noshared_bytes"].(float64))

			// They grow well beyond the limit: a trainer whose workers are not forked, and which takes long
			// to send the data set, is held for it from 95 % on only.
			out, all = r.run([]string{"--accounting", "noshared", "--limit", fmt.Sprint(uint64(2 * base / rss.MiB)), "--at", "none",
				"--at", "58%:signal=USR2@rank0", "--at", "63%:signal=USR2", "--at", "68%:recycle"}, "--leak-worker", "768")
			if got := wardentest.Checksum(out); got != want {
				t.Errorf("checksum %s, without pressure %s\n%s", got, want, out)
			}
			r.roles(all)
			ranks := r.pids(out)
			r.recycles(all, ranks)
			r.signals(out, all, ranks)
		})
	}
}

// torchrun writes what its ranks print as it comes: a line may begin anywhere.
var rankLine = regexp.MustCompile(`rank (\d): pid (\d+)`)

// pids returns the PIDs of the trainers by rank.
func (r *ranked) pids(out string) []int {
	r.t.Helper()
	ranks := []int{0, 0}
	for _, m := range rankLine.FindAllStringSubmatch(out, -1) {
		rank, _ := strconv.Atoi(m[1])
		ranks[rank], _ = strconv.Atoi(m[2])
	}
	if slices.Contains(ranks, 0) {
		r.t.Fatalf("no PIDs in\n%s", out)
	}
	return ranks
}

// roles checks the roles in the sample events: once all is up, there are one
// agent, two trainers and their four workers, and at no time more.
func (r *ranked) roles(all wardentest.Log) {
	r.t.Helper()
	whole := 0
	for _, e := range all.Of(event.NameSample) {
		n := map[rss.Role]int{}
		for role, count := range e["procs"].(map[string]any) {
			n[rss.Role(role)] = int(count.(float64))
		}
		if n[rss.RoleAgent] > 1 || n[rss.RoleTrainer] > 2 {
			r.t.Errorf("roles %v", n)
		}
		if n[rss.RoleAgent] == 1 && n[rss.RoleTrainer] == 2 && n[rss.RoleWorker] == 4 {
			whole++
		}
	}
	if whole == 0 {
		r.t.Errorf("in no sample are an agent, two trainers and four workers: %v", all.Of(event.NameSample))
	}
}

// recycles checks that workers of both ranks were replaced, one at a time.
func (r *ranked) recycles(all wardentest.Log, ranks []int) {
	r.t.Helper()
	by := map[int]int{}
	under, most := map[float64]bool{}, 0
	for _, e := range all {
		switch {
		case e["event"] == "loader" && e["what"] == "recycled":
			by[int(e["pid"].(float64))]++
			if code, ok := e["exit"]; ok && code.(float64) != 0 {
				r.t.Errorf("a worker ended badly: %v", e)
			}
		case e["event"] == "loader" && e["what"] == "off":
			r.t.Errorf("the hook is off: %v", e)
		case e["event"] == "decision" && e["action"] == "recycle":
			under[e["id"].(float64)] = true
			most = max(most, len(under))
		case e["event"] == "outcome":
			if id, ok := e["decision"].(float64); ok {
				delete(under, id)
			}
		}
	}
	for rank, pid := range ranks {
		if by[pid] == 0 {
			r.t.Errorf("no worker of rank %d was replaced: %v of %v", rank, by, ranks)
		}
	}
	if len(by) != 2 || most != 1 {
		r.t.Errorf("recycled by %v, %d at once; ranks %v", by, most, ranks)
	}
	r.t.Logf("recycles by PID %v", by)
}

// signals checks who got SIGUSR2.
func (r *ranked) signals(out string, all wardentest.Log, ranks []int) {
	r.t.Helper()
	rules := map[float64]string{}
	got := map[string]int{}
	for _, e := range all {
		switch {
		case e["event"] == "decision" && e["action"] == "signal":
			rules[e["id"].(float64)] = e["rule"].(string)
		case e["event"] == "outcome" && rules[e["decision"].(float64)] != "":
			wardentest.Has(r.t, e, "ok", true)
			got[rules[e["decision"].(float64)]]++
			r.t.Logf("%s: %v", rules[e["decision"].(float64)], e)
		}
	}
	zero, each := got["58%:signal=USR2@rank0"], got["63%:signal=USR2"]
	if zero == 0 || each == 0 {
		r.t.Fatalf("signals by rule: %v", got)
	}
	for rank, want := range []int{zero + each, each} {
		n := strings.Count(out, fmt.Sprintf("rank %d: got SIGUSR2", rank))
		// Two that come within one batch are one.
		if n == 0 || n > want {
			r.t.Errorf("rank %d got %d signals, %d were sent\n%s", rank, n, want, out)
		}
	}
}

// TestRanksExit: where a rank fails, torchrun's status is ours.
func TestRanksExit(t *testing.T) {
	t.Parallel()
	command := torches[0].command(t)
	end := func(wrap ...string) (int, string) {
		launch := slices.Concat(wrap, torchrun(t, 0, "--no_python"), []string{"sh", "-c", "echo $RANK; exit $((LOCAL_RANK * 3))"})
		cmd := command(launch[0], launch[1:]...)
		var out bytes.Buffer
		cmd.Stdout = &out
		cmd.Env = rankEnv(t.TempDir())
		if err := cmd.Run(); cmd.ProcessState == nil {
			t.Fatal(err)
		}
		return cmd.ProcessState.ExitCode(), out.String()
	}
	bareCode, bareOut := end()
	code, out := end(binary, "run", "--quiet", "--")
	if bareCode == 0 || code != bareCode || len(out) != len(bareOut) {
		t.Errorf("status %d, %q; bare %d, %q", code, out, bareCode, bareOut)
	}
}
