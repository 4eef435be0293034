package control

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/rsswarden/rsswarden/supervisor/event"
	"github.com/rsswarden/rsswarden/supervisor/socket"
	"golang.org/x/sys/unix"
)

// Why there is no answer; the errors of a [Client] wrap one of them, or a [Refused],
// or are an [*AnswerError].
var (
	ErrNoLeader = errors.New("no rsswarden run leads here")
	ErrSilent   = errors.New("the leader does not answer")
	ErrForeign  = errors.New("not yours")
	// ErrClosed is an ErrSilent: the leader ended, or began to, before it answered.
	ErrClosed = fmt.Errorf("%w: it closed the connection", ErrSilent)
	// ErrCut is an ErrSilent too: it is not known what was done after the last result.
	ErrCut = fmt.Errorf("%w: it ended before all was done", ErrSilent)
)

// VersionError is an answer in a version that this client does not speak.
type VersionError struct {
	V       int
	Program string // the version of the rsswarden that answers, empty for unknown
}

func (e *VersionError) Error() string {
	return fmt.Sprintf("it answers in version %d of the protocol, and this rsswarden speaks %d", e.V, Version)
}

// AnswerError is an answer of the leader that is none of the others.
type AnswerError struct {
	Status     int // of HTTP
	Text, Hint string
}

func (e *AnswerError) Error() string {
	return fmt.Sprintf("the leader says %d: %s", e.Status, e.Text)
}

const (
	// askPatience is how long the first line of an answer may take, connecting
	// included: the server waits for its source for a while.
	askPatience = sourcePatience + 500*time.Millisecond
	// connectPatience is how long a leader may be busy with others.
	connectPatience = time.Second
	connectPause    = 20 * time.Millisecond

	// mostStatus bounds an answer in bytes, 16,000 processes take 6 MiB, and mostListed
	// the elements of its arrays.
	mostStatus = 16 << 20
	mostListed = 1 << 17
)

// Client asks one leader. Its methods may be called by several goroutines; each
// call is a connection of its own.
type Client struct {
	dir *os.File
	uid uint32 // of the socket

	patience time.Duration // for the first line of an answer
	leader   atomic.Int64  // PID of who listened last, 0 for unknown
}

// Leader is the PID of the process that took the last call, before it answered
// too; 0 where that is not known.
func (c *Client) Leader() int { return int(c.leader.Load()) }

// Dial finds the socket in a leader's directory, and makes sure that it is this user's.
// Whether it has a listener is found out by the first call.
func Dial(dir string) (*Client, error) {
	fd, err := unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err == nil {
		c := &Client{dir: os.NewFile(uintptr(fd), dir), patience: askPatience}
		if err = c.check(); err == nil {
			return c, nil
		}
		c.Close()
	}
	return nil, fmt.Errorf("cannot ask %s: %w", dir, whyNot(err))
}

// check says whether directory and socket are this user's alone. Root may ask any
// user's.
func (c *Client) check() error {
	var d, s unix.Stat_t
	fd := int(c.dir.Fd())
	if err := errors.Join(unix.Fstat(fd, &d), unix.Fstatat(fd, SocketName, &s, unix.AT_SYMLINK_NOFOLLOW)); err != nil {
		return err
	}
	me := uint32(os.Geteuid())
	switch {
	case s.Mode&unix.S_IFMT != unix.S_IFSOCK:
		return fmt.Errorf("%w: %s is no socket", ErrForeign, SocketName)
	case me != 0 && d.Uid != me || d.Uid != s.Uid:
		return fmt.Errorf("%w: it belongs to another user", ErrForeign)
	case d.Mode&0o022 != 0:
		return fmt.Errorf("%w: others can write its directory (mode %04o)", ErrForeign, d.Mode&0o7777)
	}
	c.uid = s.Uid
	return nil
}

// Close lets go of the directory. Calls that go on are not ended by it.
func (c *Client) Close() { c.dir.Close() }

// whyNot makes one of ours of an error of the kernel's.
func whyNot(err error) error {
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, unix.ENOTDIR), errors.Is(err, unix.ECONNREFUSED):
		return ErrNoLeader
	case errors.Is(err, fs.ErrPermission), errors.Is(err, unix.ELOOP):
		return fmt.Errorf("%w: %w", ErrForeign, err)
	case errors.Is(err, unix.EAGAIN), errors.Is(err, os.ErrDeadlineExceeded):
		return ErrSilent
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, unix.ECONNRESET), errors.Is(err, unix.EPIPE):
		return ErrClosed
	}
	return err
}

// connect makes a connection. A leader that is stopped, by scontrol suspend, or
// that has too much to do accepts none.
func (c *Client) connect(ctx context.Context) (*os.File, error) {
	conn, err := socket.Dial(c.dir, SocketName)
	for until := time.Now().Add(connectPatience); err != nil; conn, err = socket.Dial(c.dir, SocketName) {
		if !errors.Is(err, unix.EAGAIN) && !errors.Is(err, unix.EINTR) || time.Now().After(until) {
			return nil, whyNot(err)
		}
		select {
		case <-time.After(connectPause):
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	pid, uid, err := socket.Peer(conn)
	c.leader.Store(int64(pid))
	if err == nil && uid != 0 && uint32(uid) != c.uid {
		err = fmt.Errorf("%w: user %d listens there", ErrForeign, uid)
	}
	if err != nil {
		conn.Close()
		return nil, whyNot(err)
	}
	return conn, nil
}

func (c *Client) Status(ctx context.Context) (*Status, error) {
	var st Status
	err := c.ask(ctx, "GET", "status", nil, func(_ *os.File, body io.Reader) error {
		text, err := io.ReadAll(io.LimitReader(body, mostStatus))
		if err == nil && event.Elements(text) > mostListed {
			err = errNoHTTP
		}
		if err != nil {
			return err
		}
		return json.NewDecoder(bytes.NewReader(text)).Decode(&st) // of half an answer it says so
	})
	if err == nil && st.V != Version {
		err = &VersionError{st.V, st.Version}
	}
	if err != nil {
		return nil, fmt.Errorf("cannot ask for the status: %w", err)
	}
	return &st, nil
}

// Do has the leader carry out a command and yields what comes of it, at last the
// line with Done. An error ends it: without a line of Done it is unknown what was
// done after the last result. To stop reading calls off what has not begun.
func (c *Client) Do(ctx context.Context, cmd Command) iter.Seq2[Result, error] {
	name := cmd.Do.Row().Command
	return func(yield func(Result, error) bool) {
		body, err := json.Marshal(cmd)
		if err == nil && (cmd.PIDs != nil && len(cmd.PIDs) == 0 || cmd.Ranks != nil && len(cmd.Ranks) == 0) {
			err = errors.New("an empty list names no process")
		}
		if err == nil && name == "" {
			err = fmt.Errorf("%s cannot be asked for", cmd.Do)
		}
		done, left := false, false
		if err == nil {
			err = c.ask(ctx, "POST", name, body, func(conn *os.File, r io.Reader) error {
				return lines(ctx, conn, r, func(line []byte) (bool, error) {
					var res Result // has no arrays
					if err := json.Unmarshal(line, &res); err != nil {
						return false, err
					}
					done = done || res.Done
					left = !yield(res, nil)
					return !left && !done, nil
				})
			})
		}
		if err == nil && !done && !left {
			err = ErrCut
		}
		if err != nil && !left {
			yield(Result{}, fmt.Errorf("cannot have the leader %s: %w", name, err))
		}
	}
}

// lines yields each line of an answer that comes as it comes.
func lines(ctx context.Context, conn *os.File, r io.Reader, each func([]byte) (more bool, err error)) error {
	if err := conn.SetReadDeadline(time.Time{}); err != nil {
		return err
	}
	stop := context.AfterFunc(ctx, func() { _ = conn.SetReadDeadline(time.Unix(1, 0)) })
	defer stop()
	s := bufio.NewScanner(r)
	s.Buffer(nil, mostStatus)
	for s.Scan() {
		if len(s.Bytes()) == 0 {
			continue
		}
		if more, err := each(slices.Clip(s.Bytes())); err != nil || !more {
			return err
		}
	}
	return s.Err()
}

// ask sends one request and hands over the body of a good answer.
func (c *Client) ask(ctx context.Context, method, name string, body []byte, read func(*os.File, io.Reader) error) error {
	until := time.Now().Add(c.patience)
	conn, err := c.connect(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	if err := conn.SetDeadline(until); err != nil {
		return err
	}
	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	q := fmt.Appendf(nil, "%s /v%d/%s HTTP/1.1\r\nHost: rsswarden\r\nConnection: close\r\n", method, Version, name)
	if method == "POST" {
		q = fmt.Appendf(q, "Content-Type: %s\r\nContent-Length: %d\r\n", oneObject, len(body))
	}
	q = append(append(q, "\r\n"...), body...)
	// A refused client may find the connection closed; the answer says why.
	_, sent := conn.Write(q)
	r := bufio.NewReader(conn)
	status, length, err := readAnswer(r)
	if err == nil && status == 200 {
		rest := io.Reader(r)
		if length >= 0 {
			rest = io.LimitReader(r, length)
		}
		err = read(conn, rest)
	} else if err == nil {
		err = badAnswer(status, r)
	} else {
		err = errors.Join(err, sent)
	}
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return ctx.Err()
	}
	return whyNot(err)
}

var errNoHTTP = errors.New("what answers is no rsswarden")

// readAnswer reads the head of an answer: the status, and the length of the body,
// -1 where that ends with the connection.
func readAnswer(r *bufio.Reader) (status int, length int64, err error) {
	left := maxHead
	next := func() (string, error) {
		line, err := r.ReadSlice('\n')
		if left -= len(line); left < 0 || errors.Is(err, bufio.ErrBufferFull) {
			return "", errNoHTTP
		}
		return strings.TrimRight(string(line), "\r\n"), err
	}
	for {
		line, err := next()
		if err != nil {
			return 0, 0, err
		}
		proto, rest, _ := strings.Cut(line, " ")
		code, _, _ := strings.Cut(rest, " ")
		if status, err = strconv.Atoi(code); err != nil || !strings.HasPrefix(proto, "HTTP/1.") || status < 100 || status > 999 {
			return 0, 0, errNoHTTP
		}
		length = -1
		for {
			if line, err = next(); err != nil {
				return 0, 0, err
			}
			if line == "" {
				break
			}
			name, value, _ := strings.Cut(line, ":")
			if strings.EqualFold(name, "Content-Length") {
				if length, err = strconv.ParseInt(strings.TrimSpace(value), 10, 64); err != nil || length < 0 {
					return 0, 0, errNoHTTP
				}
			}
		}
		if status >= 200 {
			return status, length, nil
		}
	}
}

func badAnswer(status int, r io.Reader) error {
	var f problem
	_ = json.NewDecoder(io.LimitReader(r, maxBody)).Decode(&f) // without it the status says enough
	switch status {
	case 403:
		return fmt.Errorf("%w: %s", ErrForeign, f.Text)
	case 409:
		return &Refused{Reason: f.Reason, Detail: f.Text, Hint: f.Hint}
	case 410:
		return ErrClosed
	case 503:
		return fmt.Errorf("%w: %s", ErrSilent, f.Text)
	}
	return &AnswerError{Status: status, Text: f.Text, Hint: f.Hint}
}
