package main

import (
	"errors"
	"io/fs"
	"syscall"
)

// calledOtherwise are the names that other exporters, and people, have for our options.
var calledOtherwise = map[string]string{
	"web.listen-address": "listen", "listen-address": "listen", "address": "listen", "addr": "listen", "port": "listen", "p": "listen",
	"web.config": "web.config.file", "config": "web.config.file", "config.file": "web.config.file",
	"collector.textfile.directory": "textfile", "record": "records", "nodename": "node",
}

// failure is what kept it from starting, with what to do about it.
type failure struct {
	err  error
	hint string
}

func (f *failure) Error() string { return f.err.Error() }
func (f *failure) Unwrap() error { return f.err }

// listenHint says what to do where nobody may listen at that address.
func listenHint(err error) string {
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		return "one rsswardend a node is enough; if that is another program, choose another port, as --listen 127.0.0.1:9760: ss -ltnp says who listens"
	case errors.Is(err, syscall.EADDRNOTAVAIL):
		return "no interface of this node has that address: ip addr lists those that there are; :9759 is for all"
	case errors.Is(err, fs.ErrPermission):
		return "ports below 1024 are for root alone: choose a higher one, as 9759"
	}
	return "give an address of this node and a port, as 127.0.0.1:9759, or :9759 for all addresses"
}

// webConfigHint shows the form of that file, whose errors come from a parser of YAML.
const webConfigHint = "it is YAML, as all exporters of Prometheus have it: tls_server_config: {cert_file: FILE, key_file: FILE}, basic_auth_users: {NAME: HASH of bcrypt}"
