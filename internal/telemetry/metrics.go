package telemetry

import (
	"context"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/otlptranslator"
	"go.opentelemetry.io/otel/attribute"
	otelprom "go.opentelemetry.io/otel/exporters/prometheus"
	"go.opentelemetry.io/otel/metric"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
)

// Execution is what is measured of one program's run.
type Execution struct {
	Language, Isolation, Engine string
	// Outcome is "success", "failure" for a program's own, what stopped it, or
	// "error" for paddock's failure.
	Outcome string
	// Queue is the wait for the calls before it, Start what starting an
	// interpreter took (zero: one lived), Run the program's own time.
	Queue, Start, Run time.Duration
	CPU               time.Duration
	Fuel              uint64
}

// Live is what there is at one moment.
type Live struct {
	Sessions, Interpreters, Running, Queued int
	MemoryBytes, DiskBytes                  int64
	// Pooled machines are booted for sessions that will be made; so many sessions
	// were made with one, and without although there could have been one.
	Pooled               int
	PoolHits, PoolMisses int64
}

// metrics are the instruments.
type metrics struct {
	ready sync.Map // metric.MeasurementOption, by callLabels and requestLabels
	count atomic.Int64

	meter      metric.Meter
	executions metric.Int64Counter
	queue      metric.Float64Histogram
	start      metric.Float64Histogram
	run        metric.Float64Histogram
	cpu        metric.Float64Counter
	fuel       metric.Int64Counter
	rejections metric.Int64Counter
	audit      metric.Int64Counter
	requests   metric.Float64Histogram
	calls      metric.Float64Histogram
	tools      metric.Float64Histogram
	egress     metric.Float64Histogram
	egressed   metric.Int64Counter
	words      words
}

// seconds are the bounds of the histograms: from a call that finds all there
// to the longest that a client waits.
var seconds = metric.WithExplicitBucketBoundaries(.0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 300)

// maker makes instruments and keeps the first mistake.
type maker struct {
	meter metric.Meter
	err   error
}

func made[T any](m *maker, instrument T, err error) T {
	if m.err == nil {
		m.err = err
	}
	return instrument
}

func (m *maker) counter(name, about string) metric.Int64Counter {
	c, err := m.meter.Int64Counter(name, metric.WithDescription(about))
	return made(m, c, err)
}

func (m *maker) histogram(name, about string) metric.Float64Histogram {
	h, err := m.meter.Float64Histogram(name, metric.WithDescription(about), metric.WithUnit("s"), seconds)
	return made(m, h, err)
}

func newMetrics(meter metric.Meter, version string) (*metrics, error) {
	m := maker{meter: meter}
	all := &metrics{
		meter:      meter,
		executions: m.counter("paddock.executions", "Programs that were run."),
		queue:      m.histogram("paddock.execution.queue.duration", "How long an execution waited for those before it in its session."),
		start:      m.histogram("paddock.execution.start.duration", "How long starting an interpreter took, where none lived."),
		run:        m.histogram("paddock.execution.run.duration", "How long a program ran."),
		fuel:       m.counter("paddock.fuel", "Fuel that programs consumed, where it is counted."),
		rejections: m.counter("paddock.rejections", "Requests that a limit kept out."),
		audit:      m.counter("paddock.audit.failures", "Records that the audit log did not take."),
		requests:   m.histogram("http.server.request.duration", "How long an HTTP request took."),
		calls:      m.histogram("mcp.server.operation.duration", "How long an MCP request took."),
		tools:      m.histogram("paddock.tool.call.duration", "How long a program's call of another server's tool took."),
		egress:     m.histogram("paddock.egress.request.duration", "How long a program's request to a host took."),
		egressed:   m.counter("paddock.egress.bytes", "Bytes of programs' requests to hosts, and of the answers."),
	}
	var err error
	all.cpu, err = meter.Float64Counter("paddock.cpu.time", metric.WithDescription("Processor time of programs."), metric.WithUnit("s"))
	made(&m, all.cpu, err)
	info, err := meter.Int64Gauge("paddock.build.info", metric.WithDescription("The version of paddock and of Go; always 1."))
	if made(&m, info, err); m.err == nil {
		info.Record(context.Background(), 1, metric.WithAttributes(attribute.String("version", version), attribute.String("goversion", runtime.Version())))
	}
	return all, m.err
}

// newRegistry makes what Prometheus scrapes, and the reader that fills it.
func newRegistry() (sdkmetric.Reader, *prometheus.Registry, error) {
	r := prometheus.NewRegistry()
	r.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	reader, err := otelprom.New(otelprom.WithRegisterer(r), otelprom.WithoutScopeInfo(), otelprom.WithoutTargetInfo(),
		otelprom.WithTranslationStrategy(otlptranslator.UnderscoreEscapingWithSuffixes))
	return reader, r, err
}

// Execution counts a run that has ended.
func (t *Telemetry) Execution(ctx context.Context, e Execution) {
	if t == nil || t.metrics == nil {
		return
	}
	m := t.metrics
	language, isolation := m.words.label("language", e.Language), m.words.label("isolation", e.Isolation)
	short := metric.WithAttributeSet(attribute.NewSet(language, isolation))
	m.executions.Add(ctx, 1, metric.WithAttributeSet(attribute.NewSet(language, isolation, m.words.label("engine", e.Engine), m.words.label("outcome", e.Outcome))))
	m.queue.Record(ctx, e.Queue.Seconds(), short)
	if e.Start > 0 {
		m.start.Record(ctx, e.Start.Seconds(), short)
	}
	m.run.Record(ctx, e.Run.Seconds(), short)
	m.cpu.Add(ctx, max(0, e.CPU.Seconds()), short)
	m.fuel.Add(ctx, int64(min(e.Fuel, 1<<62)), short)
}

// ToolCall counts a program's call of another server's tool. Which tool it was stands in
// the audit log: servers' words are no labels.
func (t *Telemetry) ToolCall(ctx context.Context, outcome string, took time.Duration) {
	if t != nil && t.metrics != nil {
		t.metrics.tools.Record(ctx, took.Seconds(), metric.WithAttributeSet(attribute.NewSet(t.metrics.words.label("outcome", outcome))))
	}
}

// Egress counts a program's request to a host, or a connection on which there was none.
// Which host it was stands in the audit log: what programs ask for is not a label.
func (t *Telemetry) Egress(ctx context.Context, decision string, took time.Duration, sent, received int64) {
	if t == nil || t.metrics == nil {
		return
	}
	m := t.metrics
	m.egress.Record(ctx, took.Seconds(), metric.WithAttributeSet(attribute.NewSet(m.words.label("decision", decision))))
	for direction, bytes := range map[string]int64{"sent": sent, "received": received} {
		if bytes > 0 {
			m.egressed.Add(ctx, bytes, metric.WithAttributeSet(attribute.NewSet(m.words.label("direction", direction))))
		}
	}
}

// Rejected counts a request that a limit kept out. limit is the limit's name,
// one of a few.
func (t *Telemetry) Rejected(ctx context.Context, limit string) {
	if t != nil && t.metrics != nil {
		t.metrics.rejections.Add(ctx, 1, metric.WithAttributeSet(attribute.NewSet(t.metrics.words.label("limit", limit))))
	}
}

// AuditFailed counts a record that the audit log did not take.
func (t *Telemetry) AuditFailed(ctx context.Context) {
	if t != nil && t.metrics != nil {
		t.metrics.audit.Add(ctx, 1)
	}
}

// Observe has live asked at each scrape and each sending. It is called once.
func (t *Telemetry) Observe(live func() Live) error {
	if t == nil || t.metrics == nil {
		return nil
	}
	m := maker{meter: t.metrics.meter}
	gauge := func(name, unit, about string) metric.Int64ObservableGauge {
		g, err := m.meter.Int64ObservableGauge(name, metric.WithUnit(unit), metric.WithDescription(about))
		return made(&m, g, err)
	}
	sessions := gauge("paddock.sessions", "", "Sessions that this process has open.")
	interpreters := gauge("paddock.interpreters", "", "Interpreters that live.")
	running := gauge("paddock.executions.running", "", "Executions at work.")
	queued := gauge("paddock.executions.queued", "", "Executions that wait for others of their session.")
	memory := gauge("paddock.interpreters.memory", "By", "Memory of the interpreters that live, as the limits count it.")
	disk := gauge("paddock.sessions.disk", "By", "Files of the open sessions, as the limits count them.")
	pooled := gauge("paddock.pool.ready", "", "Machines that are kept booted for sessions to come.")
	asked, err := m.meter.Int64ObservableCounter("paddock.pool.sessions", metric.WithDescription("Sessions for which a booted machine was looked for, by whether there was one."))
	if made(&m, asked, err); m.err != nil {
		return m.err
	}
	hit := metric.WithAttributeSet(attribute.NewSet(attribute.String("result", "hit")))
	miss := metric.WithAttributeSet(attribute.NewSet(attribute.String("result", "miss")))
	_, err = m.meter.RegisterCallback(func(_ context.Context, o metric.Observer) error {
		l := live()
		o.ObserveInt64(sessions, int64(l.Sessions))
		o.ObserveInt64(interpreters, int64(l.Interpreters))
		o.ObserveInt64(running, int64(l.Running))
		o.ObserveInt64(queued, int64(l.Queued))
		o.ObserveInt64(memory, l.MemoryBytes)
		o.ObserveInt64(disk, l.DiskBytes)
		o.ObserveInt64(pooled, int64(l.Pooled))
		o.ObserveInt64(asked, l.PoolHits, hit)
		o.ObserveInt64(asked, l.PoolMisses, miss)
		return nil
	}, sessions, interpreters, running, queued, memory, disk, pooled, asked)
	return err
}

// maxWords is how many values one label may have. The words are paddock's own;
// this is for the day when one is not.
const maxWords = 32

// mostKnown bounds the sets of labels that are kept ready.
const mostKnown = 1024

// known gives a set of labels, made once for each key: sorting and hashing them
// costs more than counting.
func (m *metrics) known(key any, labels func() []attribute.KeyValue) metric.MeasurementOption {
	if ready, ok := m.ready.Load(key); ok {
		return ready.(metric.MeasurementOption)
	}
	made := metric.WithAttributeSet(attribute.NewSet(labels()...))
	if m.count.Add(1) <= mostKnown {
		m.ready.Store(key, made)
	}
	return made
}

// words keeps labels few.
type words struct {
	mu   sync.Mutex
	seen map[attribute.KeyValue]bool
	many map[string]int
}

// label gives name=value, or name=other where there are too many values.
func (w *words) label(name, value string) attribute.KeyValue {
	if value == "" {
		value = "none"
	}
	if len(value) > 64 {
		value = "other"
	}
	kv := attribute.String(name, value)
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.seen[kv] {
		return kv
	}
	if w.many[name] >= maxWords {
		return attribute.String(name, "other")
	}
	if w.seen == nil {
		w.seen, w.many = map[attribute.KeyValue]bool{}, map[string]int{}
	}
	w.seen[kv] = true
	w.many[name]++
	return kv
}
