package agent

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// status is what the health endpoints report. It is apart from the loop, so a slow reader cannot delay the
// loop. Its methods may be called from several goroutines.
type status struct {
	opts    Options
	seen    func() (time.Time, error)
	repairs func() map[string]int

	mu       sync.Mutex
	alive    time.Time // when the loop went round last
	subnet   string
	expires  time.Time
	written  bool
	peers    int
	ignored  int
	renewals uint64
}

// stuckAfter is the time without a round after which the loop counts as stuck. There is a round at each
// renewal check, at least every 10 s.
const stuckAfter = time.Minute

// note takes over what the loop knows.
func (s *status) note(update func(*status)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.alive = time.Now()
	update(s)
}

// unhealthy returns what is wrong with the agent itself, which a restart may fix; nil if nothing is.
func (s *status) unhealthy() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if idle := time.Since(s.alive); idle > stuckAfter {
		return fmt.Errorf("the agent's loop has not gone round for %s", idle.Round(time.Second))
	}
	return nil
}

// unready returns what keeps the node from working; nil if nothing does.
func (s *status) unready() error {
	seen, failed := s.seen()
	s.mu.Lock()
	defer s.mu.Unlock()
	var errs []error
	if s.subnet == "" {
		errs = append(errs, errors.New("no subnet lease"))
	} else if left := time.Until(s.expires); !s.expires.IsZero() && left <= 0 {
		errs = append(errs, fmt.Errorf("the lease of %s was not renewed and has ended %s ago", s.subnet,
			(-left).Round(time.Second)))
	}
	if !s.written {
		errs = append(errs, errors.New("the subnet file is not written"))
	}
	if away := time.Since(seen); failed != nil && away > s.opts.EtcdUnseen {
		errs = append(errs, fmt.Errorf("etcd has not answered for %s: %w", away.Round(time.Second), failed))
	}
	return errors.Join(errs...)
}

// serve answers /healthz, /readyz and /metrics until ctx ends. Without a port it does nothing.
func (s *status) serve(ctx context.Context) error {
	if s.opts.HealthzPort == 0 {
		return nil
	}
	listener, err := net.Listen("tcp", net.JoinHostPort(s.opts.HealthzIP, fmt.Sprint(s.opts.HealthzPort)))
	if err != nil {
		return fmt.Errorf("serve /healthz (--healthz-ip, --healthz-port): %w", err)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("/healthz", answer(s.unhealthy))
	mux.HandleFunc("/readyz", answer(s.unready))
	registry := prometheus.NewRegistry()
	if err := registry.Register(s); err != nil {
		return fmt.Errorf("register metrics: %w", err)
	}
	mux.Handle("/metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
	server := &http.Server{Handler: mux, ReadHeaderTimeout: 5 * time.Second}
	context.AfterFunc(ctx, func() { _ = server.Close() })
	go func() { _ = server.Serve(listener) }()
	return nil
}

func answer(problem func() error) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		if err := problem(); err != nil {
			http.Error(w, strings.TrimSpace(err.Error()), http.StatusServiceUnavailable)
			return
		}
		_, _ = w.Write([]byte("ok\n"))
	}
}

func metric(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc("overlayd_"+name, help, labels, nil)
}

var (
	leaseRemaining = metric("lease_remaining_seconds", "Time until the subnet lease ends unless it is renewed.")
	peerCount      = metric("peers", "Nodes that this one has entries for.")
	repairCount    = metric("repairs_total", "Things in the kernel that were not as planned.", "kind")
	ignoredCount   = metric("ignored_entries", "Leases and keys in etcd that cannot be right.")
	etcdReachable  = metric("etcd_reachable", "Whether etcd answered when it was asked last.")
	renewalCount   = metric("renewals_total", "Renewals of the subnet lease.")
)

// Describe implements prometheus.Collector.
func (s *status) Describe(to chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{
		leaseRemaining, peerCount, repairCount, ignoredCount, etcdReachable, renewalCount,
	} {
		to <- d
	}
}

// Collect implements prometheus.Collector.
func (s *status) Collect(to chan<- prometheus.Metric) {
	gauge := func(d *prometheus.Desc, v float64) {
		to <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v)
	}
	reachable := 1.0
	if _, err := s.seen(); err != nil {
		reachable = 0
	}
	gauge(etcdReachable, reachable)
	for kind, n := range s.repairs() {
		to <- prometheus.MustNewConstMetric(repairCount, prometheus.CounterValue, float64(n), kind)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.expires.IsZero() {
		gauge(leaseRemaining, time.Until(s.expires).Seconds())
	}
	gauge(peerCount, float64(s.peers))
	gauge(ignoredCount, float64(s.ignored))
	to <- prometheus.MustNewConstMetric(renewalCount, prometheus.CounterValue, float64(s.renewals))
}
