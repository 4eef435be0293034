package main

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/exporter-toolkit/web"
)

// serve runs until SIGTERM or SIGINT.
func serve(p process, s settings) error {
	// A daemon has no terminal to lose. The file of TLS and passwords is read again at each
	// connection, so there is nothing to load again.
	signal.Ignore(syscall.SIGHUP)
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	log := slog.New(slog.NewTextHandler(p.stderr, nil))
	var at net.Listener // before anything is written: another daemon may be at work here
	if s.listen != "" {
		var err error
		if at, err = open(s, log); err != nil {
			return err
		}
		defer at.Close()
	}
	d := newDaemon(s, log)
	defer d.close()
	if err := d.jobs.Listen(); err != nil {
		log.Warn("OOM kills are looked for five times a second alone", "error", err)
	}
	d.look() // a scrape finds something from the first one on
	failed := make(chan error, 1)
	if at != nil {
		server, err := serveScrapes(at, s, d, log, failed)
		if err != nil {
			return err
		}
		defer shutdown(server)
	}
	tick := time.NewTicker(s.interval)
	defer tick.Stop()
	pause := unheardPause
	kills := time.NewTicker(pause)
	defer kills.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case err := <-failed:
			return err
		case <-tick.C:
			d.look()
		case <-kills.C:
			d.lookForKills(false)
			if p := d.killsPause(); p != pause {
				pause = p
				kills.Reset(p)
			}
		case r := <-d.lineDone():
			d.heardLine(r)
		case <-d.jobs.Told():
			d.lookForKills(true)
		}
	}
}

// Pauses between two looks at the node's count of OOM kills. unheardPause must be shorter than
// it takes most jobs to end after one, and each look takes 0.1 ms with all around it. While the
// kernel reports the kills in all steps, heardPause is how soon one without reports is noticed.
const (
	unheardPause = 200 * time.Millisecond
	heardPause   = time.Second
)

// open opens the address.
func open(s settings, log *slog.Logger) (net.Listener, error) {
	if err := web.Validate(s.webConfig); err != nil {
		return nil, &failure{fmt.Errorf("cannot use --web.config.file: %w", err), webConfigHint, exitFailed}
	}
	l, err := net.Listen("tcp", s.listen)
	if err != nil {
		return nil, &failure{fmt.Errorf("cannot listen: %w", err), listenHint(err), exitFailed}
	}
	if a, ok := l.Addr().(*net.TCPAddr); ok && !a.IP.IsLoopback() && s.webConfig == "" {
		log.Warn("whoever reaches this address may read the metrics; --web.config.file has TLS and passwords", "address", l.Addr().String())
	}
	return l, nil
}

// serveScrapes answers them in the background. What ends that goes to failed.
func serveScrapes(l net.Listener, s settings, d *daemon, log *slog.Logger, failed chan<- error) (*http.Server, error) {
	registry := prometheus.NewRegistry()
	for _, c := range []prometheus.Collector{collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}), collectors.NewGoCollector()} {
		if err := registry.Register(c); err != nil {
			return nil, fmt.Errorf("cannot register the metrics: %w", err)
		}
	}
	landing, err := web.NewLandingPage(web.LandingConfig{
		Name: programName, Version: version, Description: "Memory of the Slurm jobs of this node",
		Profiling: "false", // there is none
		Links:     []web.LandingLinks{{Address: "/metrics", Text: "Metrics"}, {Address: "/-/healthy", Text: "Health"}},
	})
	if err != nil {
		return nil, fmt.Errorf("cannot make the landing page: %w", err)
	}
	mux := http.NewServeMux()
	mux.Handle("/", landing)
	mux.Handle("/metrics", inTurn(scrapes(d, registry)))
	mux.HandleFunc("/-/healthy", func(w http.ResponseWriter, _ *http.Request) {
		if v := d.snap.Load(); v == nil || !d.isFresh(v) {
			http.Error(w, "the last look is too old", http.StatusServiceUnavailable)
			return
		}
		fmt.Fprintln(w, programName+" is healthy.")
	})
	server := &http.Server{
		Handler: whileServed(mux), ConnContext: callerOf, MaxHeaderBytes: maxHeader,
		ReadHeaderTimeout: 5 * time.Second, ReadTimeout: 10 * time.Second, WriteTimeout: 15 * time.Second, IdleTimeout: 5 * time.Minute,
	}
	l = &door{Listener: l}
	var none bool
	addresses := []string{s.listen}
	flags := &web.FlagConfig{WebListenAddresses: &addresses, WebSystemdSocket: &none, WebConfigFile: &s.webConfig}
	go func() {
		if err := web.Serve(l, server, flags, log); !errors.Is(err, http.ErrServerClosed) {
			failed <- fmt.Errorf("cannot serve %s: %w", s.listen, err)
		}
	}()
	return server, nil
}

// scrapes answers with the metrics of jobs, and what the registry has of this process. The
// text of jobs is that of the textfile: as metrics of client_golang it took 2.5 times the
// processor time.
func scrapes(d *daemon, registry prometheus.Gatherer) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		families, err := registry.Gather()
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		w.Header().Set("Content-Type", string(expfmt.NewFormat(expfmt.TypeTextPlain)))
		_ = d.scrape(w) // it fails where the client has gone
		for _, f := range families {
			_, _ = expfmt.MetricFamilyToText(w, f)
		}
	})
}

// Scrapes hold a set of metrics each: maxScrapes are answered at once. Others wait their turn, as
// long as Prometheus does by default; else one busy client would keep all others out.
const (
	maxScrapes     = 4
	scrapePatience = 10 * time.Second
)

func inTurn(h http.Handler) http.Handler {
	turns := make(chan struct{}, maxScrapes)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		patience := time.NewTimer(scrapePatience)
		defer patience.Stop()
		select {
		case turns <- struct{}{}:
			defer func() { <-turns }()
			h.ServeHTTP(w, r)
		case <-r.Context().Done():
		case <-patience.C:
			http.Error(w, "too many scrapes at once", http.StatusServiceUnavailable)
		}
	})
}

// Every user of the node may connect, as often as it likes: what connections take is
// bounded by these. One takes 20 KiB, with TLS 60.
const (
	maxConnections = 512
	maxHeader      = 8 << 10
)

// door is a listener that keeps maxConnections open. For one more it closes another:
// the oldest that has asked for nothing yet, else the oldest that waits between two
// requests. A listener that waited instead would keep scrapes out for as long as
// a client holds connections.
type door struct {
	net.Listener
	mu   sync.Mutex
	open []*caller // the oldest first
}

// caller is a connection.
type caller struct {
	net.Conn
	at            *door
	served        int // requests that are being answered
	asked, closed bool
}

func (d *door) Accept() (net.Conn, error) {
	conn, err := d.Listener.Accept()
	if err != nil {
		return nil, err
	}
	c := &caller{Conn: conn, at: d}
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.open) >= maxConnections {
		d.least().close()
	}
	d.open = append(d.open, c)
	return c, nil
}

// least is the connection that is missed least.
func (d *door) least() *caller {
	var idle *caller
	for _, c := range d.open {
		switch {
		case !c.asked:
			return c
		case c.served == 0 && idle == nil:
			idle = c
		}
	}
	return cmp.Or(idle, d.open[0])
}

func (c *caller) Close() error {
	c.at.mu.Lock()
	defer c.at.mu.Unlock()
	return c.close()
}

// close is called with the door's mutex held.
func (c *caller) close() error {
	if c.closed {
		return net.ErrClosed
	}
	c.closed = true
	c.at.open = slices.DeleteFunc(c.at.open, func(o *caller) bool { return o == c })
	return c.Conn.Close()
}

type callerKey struct{}

// callerOf leaves the connection where [whileServed] finds it.
func callerOf(ctx context.Context, c net.Conn) context.Context {
	if t, ok := c.(*tls.Conn); ok {
		c = t.NetConn()
	}
	return context.WithValue(ctx, callerKey{}, c)
}

// whileServed marks the connection of a request while that is answered.
func whileServed(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if c, ok := r.Context().Value(callerKey{}).(*caller); ok {
			c.serve(1)
			defer c.serve(-1)
		}
		h.ServeHTTP(w, r)
	})
}

func (c *caller) serve(more int) {
	c.at.mu.Lock()
	defer c.at.mu.Unlock()
	c.served += more
	c.asked = true
}

// shutdown lets scrapes that are under way end.
func shutdown(server *http.Server) {
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Second)
	defer cancel()
	if server.Shutdown(ctx) != nil {
		server.Close()
	}
}

// listenHint says what to do where the address cannot be listened at.
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
