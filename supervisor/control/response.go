package control

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"time"
)

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
	// Who is turned away may find the connection closed; the answer tells why.
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

// badAnswer is the error that an answer tells of.
func badAnswer(status int, r io.Reader) error {
	var f failure
	_ = json.NewDecoder(io.LimitReader(r, maxBody)).Decode(&f) // without it the status says enough
	switch status {
	case 403:
		return fmt.Errorf("%w: %s", ErrForeign, f.Error)
	case 409:
		return &Refused{Reason: f.Reason, Detail: f.Error, Hint: f.Hint}
	case 503:
		return fmt.Errorf("%w: %s", ErrSilent, f.Error)
	}
	return &AnswerError{Status: status, Text: f.Error, Hint: f.Hint}
}
