module github.com/rsswarden/rsswarden

go 1.26.0

require (
	// LMDB for the Go example (and later the record): the user's choice. v1.8.0
	// by exact version; it brings LMDB 0.9.19 in C with it.
	github.com/bmatsuo/lmdb-go v1.8.0
	// Tests only: pseudo-terminals, for job control as a user meets it.
	github.com/creack/pty v1.1.24
	// Tests only: readable differences.
	github.com/google/go-cmp v0.7.0
	// examples/packages/pack alone, which `make release` runs: RPMs, without rpmbuild.
	github.com/google/rpmpack v0.7.1
	// TOML in supervisor/config: tells line and column of every key, imports
	// nothing but the standard library, costs 5 µs at start. BurntSushi/toml,
	// as good otherwise, reads /etc/localtime each time the program starts.
	github.com/pelletier/go-toml/v2 v2.4.3
	// In cmd/rsswardend alone: metrics of its own process, written as text by common; and exporter-toolkit,
	// which has TLS and passwords as all exporters have them: no job links what they bring along.
	github.com/prometheus/client_golang v1.25.0
	// Tests only, with common: the text format of metrics as others read it.
	github.com/prometheus/client_model v0.6.3
	github.com/prometheus/common v0.72.0
	github.com/prometheus/exporter-toolkit v0.20.0
	// RLIMIT_RSS of /proc/PID/limits, which is read once; in tests a second opinion on our own readers.
	github.com/prometheus/procfs v0.23.0
	// Tests only: testscript, for the command line.
	github.com/rogpeppe/go-internal v1.16.0
	// The command line, in cmd alone. v2 is the user's choice.
	github.com/urfave/cli/v2 v2.27.7
	// The lines on stderr, by its zapcore: package zap itself links net/http.
	go.uber.org/zap v1.28.0
	// Tests only: the recipe for conda.
	go.yaml.in/yaml/v2 v2.4.4
	// bench alone: the format of Go benchmarks, and benchstat, which compares two runs.
	golang.org/x/perf v0.0.0-20260908200009-22c9c6c9d4da
	// signalfd, pidfd, waitid, prctl and inotify.
	golang.org/x/sys v0.49.0
	// Raw mode and size of a terminal, for the live screen: with x/sys nothing
	// but the standard library behind it.
	golang.org/x/term v0.47.0
	// Tests only: text archives of /proc and cgroup trees.
	golang.org/x/tools v0.52.0
)

require (
	github.com/aclements/go-moremath v0.0.0-20210112150236-f10218a38794 // indirect
	github.com/beorn7/perks v1.0.1 // indirect
	github.com/cavaliergopher/cpio v1.0.1 // indirect
	github.com/cespare/xxhash/v2 v2.3.0 // indirect
	github.com/coreos/go-systemd/v22 v22.7.0 // indirect
	github.com/cpuguy83/go-md2man/v2 v2.0.7 // indirect
	github.com/golang-jwt/jwt/v5 v5.3.1 // indirect
	github.com/google/uuid v1.6.0 // indirect
	github.com/jpillora/backoff v1.0.0 // indirect
	github.com/klauspost/compress v1.20.1 // indirect
	github.com/klauspost/pgzip v1.2.6 // indirect
	github.com/mdlayher/socket v0.6.0 // indirect
	github.com/mdlayher/vsock v1.3.0 // indirect
	github.com/munnerz/goautoneg v0.0.0-20191010083416-a7dc8b61c822 // indirect
	github.com/mwitkow/go-conntrack v0.0.0-20190716064945-2f068394615f // indirect
	github.com/russross/blackfriday/v2 v2.1.0 // indirect
	github.com/ulikunitz/xz v0.5.12 // indirect
	github.com/xrash/smetrics v0.0.0-20240521201337-686a1a2994c1 // indirect
	go.uber.org/multierr v1.10.0 // indirect
	golang.org/x/crypto v0.58.0 // indirect
	golang.org/x/net v0.61.0 // indirect
	golang.org/x/oauth2 v0.37.0 // indirect
	golang.org/x/sync v0.24.0 // indirect
	golang.org/x/text v0.43.0 // indirect
	golang.org/x/time v0.15.0 // indirect
	google.golang.org/protobuf v1.36.12 // indirect
)

tool golang.org/x/perf/cmd/benchstat
