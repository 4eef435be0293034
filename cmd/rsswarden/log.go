package main

import (
	"os"
	"strings"
	"time"

	"go.uber.org/zap/buffer"
	"go.uber.org/zap/zapcore"

	"github.com/rsswarden/rsswarden/supervisor/fault"
	"github.com/rsswarden/rsswarden/supervisor/settings"
	"github.com/rsswarden/rsswarden/supervisor/text"
	"golang.org/x/term"
)

// logger writes through a core of zap's. Package zap itself has a handler for
// HTTP, and with it 1.7 MB of net/http and TLS in the program and 1.5 MiB in the
// RSS of holder and watcher each.
type logger struct {
	core  zapcore.Core
	out   *lossyWriter
	how   settings.Log
	style text.Style
}

func (l logger) Info(line string) { l.write(zapcore.InfoLevel, line) }
func (l logger) Warn(line string) { l.write(zapcore.WarnLevel, line) }

// Summary writes the end of a run, as one object where the log is JSON.
func (l logger) Summary(draw func(text.Style) []string, brief any) {
	if l.how.Quiet && !l.how.Short {
		return
	}
	lines := draw(l.style)
	if l.how.LogFormat == "json" && (len(lines) > 0 || !l.how.Short) {
		entry := zapcore.Entry{Level: zapcore.InfoLevel, Time: time.Now(), Message: "ended"}
		_ = l.core.Write(entry, []zapcore.Field{{Key: "summary", Type: zapcore.ReflectType, Interface: brief}})
		return
	}
	for _, line := range lines {
		_, _ = l.out.Write([]byte(programName + ": " + line + "\n"))
	}
}

func (l logger) write(level zapcore.Level, line string) {
	e := zapcore.Entry{Level: level, Time: time.Now(), Message: line}
	if c := l.core.Check(e, nil); c != nil {
		c.Write()
	}
}

// newLog returns a logger that writes short lines to stderr: "rsswarden: 14:03:07 84 % of
// 900 MiB", or JSON objects. A stderr that is full or gone must not hold up the
// watcher: lines go through a queue and are dropped if it is full.
func newLog(stderr *os.File, style text.Style, how settings.Log) (logger, func(time.Duration)) {
	level := zapcore.InfoLevel
	if how.Quiet {
		level = zapcore.ErrorLevel
	}
	conf := zapcore.EncoderConfig{
		MessageKey: "msg", LevelKey: "level", TimeKey: "time", LineEnding: "\n",
		EncodeTime: zapcore.RFC3339TimeEncoder, EncodeLevel: zapcore.LowercaseLevelEncoder,
	}
	encoder := plainEncoder{zapcore.NewJSONEncoder(conf), text.Style{}, 0}
	if how.LogFormat != "json" {
		conf.LevelKey = ""
		conf.ConsoleSeparator = " "
		conf.EncodeTime = func(t time.Time, enc zapcore.PrimitiveArrayEncoder) {
			enc.AppendString(linePrefix(t))
		}
		encoder = plainEncoder{zapcore.NewConsoleEncoder(conf), style, 0}
		if _, set := os.LookupEnv("COLUMNS"); set || term.IsTerminal(int(stderr.Fd())) {
			encoder.columns = max(style.Columns()-len(linePrefix(time.Now()))-1, 20)
		}
	}
	w := newLossyWriter(stderr)
	return logger{zapcore.NewCore(encoder, zapcore.AddSync(w), level), w, how, style}, w.close
}

func linePrefix(t time.Time) string { return programName + ": " + t.Format(time.TimeOnly) }

// plainEncoder keeps each message from steering a terminal: it may hold names of files and
// processes, and output of exec= rules. It breaks messages into lines of so many columns
// where that is not 0; a log file that has no width keeps each on one line, for grep.
type plainEncoder struct {
	zapcore.Encoder
	style   text.Style
	columns int
}

func (e plainEncoder) EncodeEntry(entry zapcore.Entry, fields []zapcore.Field) (*buffer.Buffer, error) {
	entry.Message = e.style.Plain(sentences(entry.Message))
	if e.columns > 0 && text.Columns(entry.Message) > e.columns {
		const indent = "  "
		lines := text.Wrap(entry.Message, e.columns-len(indent))
		for i, line := range lines {
			lines[i] = text.Middle(line, e.columns-len(indent))
		}
		entry.Message = strings.Join(lines, "\n"+linePrefix(entry.Time)+" "+indent)
	}
	return e.Encoder.EncodeEntry(entry, fields)
}

// lossyWriter passes lines on to a file in the background.
type lossyWriter struct {
	lines   chan []byte
	closing chan struct{}
	done    chan struct{}
}

func newLossyWriter(out *os.File) *lossyWriter {
	w := &lossyWriter{lines: make(chan []byte, 128), closing: make(chan struct{}), done: make(chan struct{})}
	go func() {
		defer close(w.done)
		for {
			// What is queued comes before the end.
			select {
			case line := <-w.lines:
				_, _ = out.Write(line) // there is no better place to complain
				continue
			default:
			}
			select {
			case line := <-w.lines:
				fault.Point("log")
				_, _ = out.Write(line)
			case <-w.closing:
				if len(w.lines) == 0 {
					return
				}
			}
		}
	}()
	return w
}

func (w *lossyWriter) Write(p []byte) (int, error) {
	select {
	case w.lines <- append([]byte(nil), p...):
	default:
		// The queue is full.
	}
	return len(p), nil
}

// close writes what is queued, for at most patience. Later lines are lost.
func (w *lossyWriter) close(patience time.Duration) {
	close(w.closing)
	select {
	case <-w.done:
	case <-time.After(patience):
	}
}
