package promtest

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"testing"
	"time"
)

// Note is what a receiver got about one alert.
type Note struct {
	Status              string // firing, resolved
	Labels, Annotations map[string]string
	At                  time.Time // when it came
}

// Receiver is a webhook of an Alertmanager's.
type Receiver struct {
	URL string

	mu  sync.Mutex
	all []Note
}

// NewReceiver serves one until the test ends.
func NewReceiver(t testing.TB) *Receiver {
	r := &Receiver{}
	s := httptest.NewServer(r)
	t.Cleanup(s.Close)
	r.URL = s.URL
	return r
}

// ServeHTTP takes a group of alerts.
func (r *Receiver) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	var got struct{ Alerts []Note }
	if err := json.NewDecoder(req.Body).Decode(&got); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, n := range got.Alerts {
		n.At = time.Now()
		r.all = append(r.all, n)
	}
}

// Notes are all that came since a time, in their order.
func (r *Receiver) Notes(since time.Time) []Note {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(r.all), func(n Note) bool { return n.At.Before(since) })
}

// Find returns the first note since a time that is so.
func (r *Receiver) Find(since time.Time, status string, labels map[string]string) (Note, bool) {
	for _, n := range r.Notes(since) {
		is := n.Status == status
		for name, value := range labels {
			is = is && n.Labels[name] == value
		}
		if is {
			return n, true
		}
	}
	return Note{}, false
}
