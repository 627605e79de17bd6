package e2b

import (
	"context"
	"net/http"
	"strconv"
	"strings"
	"time"

	"paddock/internal/fault"
	"paddock/internal/session"
)

// mostSamples are kept of each sandbox: of an hour.
const mostSamples = int(time.Hour / sampleEvery)

// sample is what a sandbox used at a moment.
type sample struct {
	Timestamp     time.Time `json:"timestamp"`
	TimestampUnix int64     `json:"timestampUnix"`
	CPUCount      int       `json:"cpuCount"`
	CPUUsed       float64   `json:"cpuUsedPct"`
	MemUsed       int64     `json:"memUsed"`
	MemTotal      int64     `json:"memTotal"`
	MemCache      int64     `json:"memCache"`
	DiskUsed      int64     `json:"diskUsed"`
	DiskTotal     int64     `json:"diskTotal"`
}

// sampleAll measures what runs.
func (s *Server) sampleAll(ctx context.Context) {
	for _, one := range s.list() {
		one.measure(ctx)
	}
}

// measure takes a sample of a sandbox that runs.
func (b *sandbox) measure(ctx context.Context) {
	b.mu.Lock()
	up := b.up
	b.mu.Unlock()
	if !up {
		return
	}
	u, err := b.s.config.Sessions.Usage(ctx, b.owner, b.session)
	if err != nil || u.Booted.IsZero() {
		return
	}
	c, now := b.s.config, time.Now()
	b.mu.Lock()
	defer b.mu.Unlock()
	b.samples = append(b.samples, sample{
		now.UTC(), now.Unix(), c.CPUs, u.CPU / float64(max(c.CPUs, 1)), u.Memory, c.MemoryBytes, 0, u.Disk, c.DiskBytes,
	})
	if len(b.samples) > mostSamples {
		b.samples = b.samples[len(b.samples)-mostSamples:]
	}
}

func (s *Server) metrics(r *http.Request, owner session.Owner) (any, int, error) {
	b, err := s.of(owner, r.PathValue("id"))
	if err != nil {
		return nil, 0, err
	}
	start, err := moment(r, "start", 0)
	if err != nil {
		return nil, 0, err
	}
	end, err := moment(r, "end", time.Now().Unix()+1)
	if err != nil {
		return nil, 0, err
	}
	if start > end {
		return nil, 0, fault.New(fault.Invalid, "start is after end")
	}
	b.mu.Lock()
	none := len(b.samples) == 0
	b.mu.Unlock()
	if none {
		b.measure(r.Context())
	}
	all := []sample{}
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, one := range b.samples {
		if one.TimestampUnix >= start && one.TimestampUnix <= end {
			all = append(all, one)
		}
	}
	return all, http.StatusOK, nil
}

// moment reads a time in seconds.
func moment(r *http.Request, name string, usual int64) (int64, error) {
	text := r.URL.Query().Get(name)
	if text == "" {
		return usual, nil
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < 0 {
		return 0, fault.New(fault.Invalid, "%s is not a time in seconds", name)
	}
	return n, nil
}

// metricsOfAll gives the newest sample of some sandboxes.
func (s *Server) metricsOfAll(r *http.Request, owner session.Owner) (any, int, error) {
	all := map[string]sample{}
	for id := range strings.SplitSeq(r.URL.Query().Get("sandbox_ids"), ",") {
		b, err := s.of(owner, id)
		if err != nil {
			continue
		}
		b.mu.Lock()
		if n := len(b.samples); n > 0 {
			all[b.id] = b.samples[n-1]
		}
		b.mu.Unlock()
	}
	return map[string]any{"sandboxes": all}, http.StatusOK, nil
}
