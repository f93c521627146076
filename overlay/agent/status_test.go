package agent

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

func newStatus(seen time.Time, failed error) *status {
	return &status{
		opts: Options{EtcdUnseen: time.Minute}, alive: time.Now(),
		seen:    func() (time.Time, error) { return seen, failed },
		repairs: func() map[string]int { return map[string]int{"route": 3} },
	}
}

func ask(t *testing.T, problem func() error) (int, string) {
	t.Helper()
	w := httptest.NewRecorder()
	answer(problem)(w, httptest.NewRequest(http.MethodGet, "/", nil))
	body, err := io.ReadAll(w.Result().Body)
	if err != nil {
		t.Fatal(err)
	}
	return w.Code, string(body)
}

func TestReadinessTellsTheTruth(t *testing.T) {
	away := errors.New("connection refused")
	ready := func(s *status) {
		s.subnet, s.written, s.expires = "10.5.1.0/24", true, time.Now().Add(time.Hour)
	}
	for name, c := range map[string]struct {
		status *status
		change func(*status)
		want   string
	}{
		"ready":    {newStatus(time.Now(), nil), ready, ""},
		"at start": {newStatus(time.Now(), nil), func(*status) {}, "no subnet lease"},
		"not written": {
			newStatus(time.Now(), nil), func(s *status) { ready(s); s.written = false },
			"not written",
		},
		"not renewed": {
			newStatus(time.Now(), nil), func(s *status) { ready(s); s.expires = time.Now() },
			"has ended",
		},
		"etcd away":        {newStatus(time.Now().Add(-time.Hour), away), ready, "has not answered for 1h0m0s"},
		"etcd away lately": {newStatus(time.Now().Add(-time.Second), away), ready, ""},
	} {
		c.status.note(c.change)
		code, body := ask(t, c.status.unready)
		if (code == http.StatusOK) != (c.want == "") || !strings.Contains(body, c.want) {
			t.Errorf("%s: %d %q", name, code, body)
		}
	}
}

func TestHealthNoticesAStuckLoop(t *testing.T) {
	s := newStatus(time.Now(), nil)
	if code, body := ask(t, s.unhealthy); code != http.StatusOK {
		t.Errorf("%d %q", code, body)
	}
	s.alive = time.Now().Add(-2 * stuckAfter)
	if code, body := ask(t, s.unhealthy); code != http.StatusServiceUnavailable {
		t.Errorf("%d %q", code, body)
	}
}

func TestMetrics(t *testing.T) {
	s := newStatus(time.Now(), errors.New("away"))
	s.note(func(s *status) { s.peers, s.renewals, s.expires = 4, 2, time.Now().Add(time.Minute) })
	registry := prometheus.NewPedanticRegistry()
	if err := registry.Register(s); err != nil {
		t.Fatal(err)
	}
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]float64{}
	for _, f := range families {
		m := f.Metric[0]
		got[f.GetName()] = m.GetGauge().GetValue() + m.GetCounter().GetValue()
	}
	for name, want := range map[string]float64{
		"overlayd_peers": 4, "overlayd_renewals_total": 2, "overlayd_repairs_total": 3,
		"overlayd_etcd_reachable": 0,
	} {
		if v, ok := got[name]; !ok || v != want {
			t.Errorf("%s is %v", name, v)
		}
	}
	if left := got["overlayd_lease_remaining_seconds"]; left < 50 || left > 60 {
		t.Errorf("%v s remain", left)
	}
}
