package remote

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/rsswarden/rsswarden/slurm"
	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/text"
)

const (
	// reachPatience is how long every node may take for its first answer, and
	// answerPatience how long a status may take after that.
	reachPatience  = 20 * time.Second
	answerPatience = 10 * time.Second
)

// srunStep asks all nodes of a job by a step of Slurm's beside the job's own.
type srunStep struct {
	job     slurm.Running
	node    string   // the only one, empty for all
	args    []string // of this program there
	env     []string
	lasting bool // answers may take their time once they have begun
}

func (o srunStep) nodes() []string {
	if o.node != "" {
		return []string{o.node}
	}
	return o.job.Nodes
}

// hint is what to do about nodes that were not reached.
func (o srunStep) hint(nodes []string) string {
	where := "ssh " + nodes[0]
	if len(nodes) > 1 {
		where = "on each of them: ssh NODE"
	}
	return fmt.Sprintf("%s %s %s; or in the job's script, where srun may be allowed", where, program, o.args[0])
}

// run asks, and passes each answer on as it comes. silent are the nodes that did not give
// their last answer, and why is the reason.
func (o srunStep) run(ctx context.Context, each func(Answer)) (silent []string, why string, err error) {
	exe, err := os.Readlink("/proc/self/exe")
	if err == nil && strings.HasSuffix(exe, " (deleted)") {
		err = errors.New("this program was replaced while it runs; start it again")
	}
	if err != nil {
		return o.nodes(), err.Error(), nil
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	cmd := exec.CommandContext(ctx, "srun", slurm.OverlapArgs(o.job, o.node, append([]string{exe}, o.args...)...)...)
	cmd.Env = slurm.OverlapEnv(o.env)
	// We pass a Ctrl-C on: at the first one srun only says where it is.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = 3 * time.Second
	var errs text.Bounded
	cmd.Stderr = &errs
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if errors.Is(err, exec.ErrNotFound) {
		err = errors.New("srun is not installed here")
	}
	if err != nil {
		var errno syscall.Errno
		if errors.As(err, &errno) {
			err = errno
		}
		return o.nodes(), err.Error(), nil
	}

	lines := make(chan *Answer)
	var damaged atomic.Bool
	go func() {
		defer close(lines)
		g := messages{}
		s := bufio.NewScanner(out)
		s.Buffer(nil, 64<<10)
		for s.Scan() {
			m, err := g.add(s.Bytes())
			if err != nil {
				damaged.Store(true)
			} else if m != nil {
				lines <- m
			}
		}
	}()
	begun, over, late := map[string]bool{}, map[string]bool{}, false
	patience := time.NewTimer(reachPatience)
	defer patience.Stop()
	for open := true; open; {
		select {
		case m, ok := <-lines:
			switch {
			case !ok:
				open = false
			case m.Begun:
				begun[m.Node] = true
				if len(begun) == len(o.nodes()) {
					patience.Stop()
					if !o.lasting {
						patience.Reset(answerPatience)
					}
				}
			case m.Over:
				over[m.Node] = true
			default:
				each(*m)
			}
		case <-patience.C:
			late = true
			if !o.lasting || len(begun) == 0 {
				cancel()
			}
		}
		if late && len(over) == len(begun) {
			cancel() // all nodes that began have ended
		}
	}
	err = cmd.Wait()
	for _, n := range o.nodes() {
		if !over[n] {
			silent = append(silent, n)
		}
	}
	switch {
	case len(silent) == 0:
		return nil, "", nil
	case late:
		return silent, fmt.Sprintf("no answer within %v", reachPatience), nil
	case ctx.Err() != nil:
		return nil, "", ctx.Err()
	case damaged.Load():
		return silent, errPieces.Error(), nil
	}
	if why = text.Plain(slurm.OverlapRefused(errs.Bytes())); why == "" && err != nil {
		why = err.Error()
	}
	return silent, cmp.Or(why, "it ended without an answer"), nil
}

// maxServe bounds the time that one step repeats the status: the asking process may have
// ended without ending it.
const maxServe = 10 * time.Minute

// Serve answers for this node, in a step that [Ask] started: it writes what the leaders
// here answer.
func Serve(c Caller, q Request, out io.Writer) error {
	ctx, cancel := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	defer cancel()
	node, job := c.get("SLURMD_NODENAME"), c.get("SLURM_JOB_ID")
	if node == "" || job == "" {
		return &Error{Usage: true, Msg: "this is no step of a Slurm job", Hint: program + " status --job ID"}
	}
	broken := false
	put := func(a Answer) {
		a.Node = node
		broken = broken || writePieces(out, a) != nil // the asking process has ended
	}
	put(Answer{Begun: true})
	for end := time.Now().Add(maxServe); ; {
		leaders := Target{Node: node}.askLocal(ctx, c, job)
		if len(leaders) == 0 {
			put(Answer{Job: job, Error: "no rsswarden run of the job is there now", Hint: "it has ended, or none was started there: rsswarden report tells of those that left a record"})
		}
		q.here(ctx, node, leaders, put)
		if q.Every == 0 || broken || time.Now().After(end) {
			break
		}
		select {
		case <-time.After(q.Every):
			continue
		case <-ctx.Done():
		}
		break
	}
	put(Answer{Over: true})
	return nil
}

// Answers go through srun, which passes lines of up to 1 KiB on whole and cuts longer ones,
// so that those of several nodes mix. An answer is therefore cut into lines that name the
// node:
//
//	rsswarden NODE + PIECE
//	rsswarden NODE . LAST PIECE

const (
	pieceMark  = "rsswarden "
	pieceBytes = 900
	// maxMessage bounds what is kept of one answer, in bytes.
	maxMessage = 20 << 20
	// maxElements bounds the elements of its arrays.
	maxElements = 1 << 17
)

// writePieces writes one answer.
func writePieces(w io.Writer, s Answer) error {
	b, err := json.Marshal(s)
	if err != nil {
		return err
	}
	var out bytes.Buffer
	node := nodeWord(s.Node)
	for len(b) > pieceBytes {
		fmt.Fprintf(&out, "%s%s + %s\n", pieceMark, node, b[:pieceBytes])
		b = b[pieceBytes:]
	}
	fmt.Fprintf(&out, "%s%s . %s\n", pieceMark, node, b)
	_, err = w.Write(out.Bytes())
	return err
}

// nodeWord keeps a node's name short and without blanks, as Slurm's are.
func nodeWord(name string) string {
	name = strings.Join(strings.Fields(text.Plain(name)), "_")
	if name == "" {
		return "-"
	}
	return name[:min(len(name), 64)]
}

var errPieces = errors.New("an answer is damaged")

// messages are answers of which lines have come, by node.
type messages map[string][]byte

// add takes a line in, and returns the answer that it ends, nil for none. A line
// that is no piece of one is passed over: a site's own programs may have written it.
func (g messages) add(line []byte) (*Answer, error) {
	rest, ok := bytes.CutPrefix(line, []byte(pieceMark))
	node, rest, cut := bytes.Cut(rest, []byte(" "))
	if !ok || !cut || len(rest) < 2 || rest[1] != ' ' || rest[0] != '+' && rest[0] != '.' {
		return nil, nil
	}
	name := string(node)
	g[name] = append(g[name], rest[2:]...)
	if len(g[name]) > maxMessage {
		delete(g, name)
		return nil, errPieces
	}
	if rest[0] == '+' {
		return nil, nil
	}
	var s Answer
	whole := g[name]
	delete(g, name)
	if event.Elements(whole) > maxElements || json.Unmarshal(whole, &s) != nil {
		return nil, errPieces
	}
	return &s, nil
}
