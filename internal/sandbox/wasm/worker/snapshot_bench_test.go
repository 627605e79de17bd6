package worker

import (
	"bytes"
	"fmt"
	"io"
	"math"
	"os"
	"testing"
	"time"

	"paddock/internal/sandbox/wire"
	"paddock/internal/sandbox/wire/wiretest"
)

// benched is an interpreter without a server, to measure parts of it.
type benched struct {
	*instance
	b     *testing.B
	last  time.Time
	parts map[string]time.Duration
	order []string
}

func newBenched(b *testing.B, p *program, pages *pages, state *snapshots) *benched {
	in := &instance{program: p, log: io.Discard}
	in.worker = &worker{conn: wire.NewConn(&wiretest.Recorder{}), folders: folders{}, pages: pages}
	in.connect(in.worker.conn)
	in.saved.pages = pages
	if state != nil {
		in.saved.begin(state.find("m"))
	}
	n := &benched{instance: in, b: b, parts: map[string]time.Duration{}}
	n.must(in.open(state != nil))
	return n
}

func benchedProgram(b *testing.B, name string) *program {
	b.Helper()
	dir := os.Getenv("PADDOCK_BENCH_CACHE")
	if dir == "" {
		dir = b.TempDir()
	}
	l, err := newLoader(b.Context(), dir)
	if err != nil {
		b.Fatal(err)
	}
	p, err := l.load(b.Context(), name, true)
	if err != nil {
		b.Fatal(err)
	}
	return p
}

func (n *benched) must(err error) {
	if err != nil {
		n.b.Fatal(err)
	}
}

func (n *benched) begin() { n.last = time.Now() }

func (n *benched) part(name string) {
	now := time.Now()
	if _, known := n.parts[name]; !known {
		n.order = append(n.order, name)
	}
	n.parts[name] += now.Sub(n.last)
	n.last = time.Now()
}

func (n *benched) report() {
	for _, name := range n.order {
		n.b.ReportMetric(float64(n.parts[name].Nanoseconds())/1000/float64(n.b.N), name+"-µs")
	}
}

func (n *benched) exec(code string) {
	n.ends.Control.Begin(math.MaxInt64)
	exit, _, err := n.runCode(code)
	n.must(err)
	if exit.Error != nil {
		n.b.Fatal(exit.Error)
	}
	n.touched, n.unkept = true, true
}

// used is what programs of a session do before the one that is measured.
var used = map[string][3]string{
	"python":     {"x = 0\ndata = {str(i): i for i in range(1000)}\nimport json\ntext = json.dumps(data)", "x += 1", "x"},
	"javascript": {"globalThis.x = 0; const data = {}; for (let i = 0; i < 1000; i++) data[i] = i; const text = JSON.stringify(data);", "x += 1", "x"},
}

// BenchmarkSmallSnapshot is what keeping the state costs after a run that does
// next to nothing, and which part of that is what.
func BenchmarkSmallSnapshot(b *testing.B) {
	for name, code := range used {
		b.Run(name, func(b *testing.B) {
			n := newBenched(b, benchedProgram(b, name), newPages(), nil)
			defer n.discard()
			n.exec(code[0])
			_, err := n.keep(wire.SnapshotBody{}, io.Discard)
			n.must(err)
			bytes, pages := 0, 0
			for b.Loop() {
				n.begin()
				n.exec(code[1])
				n.part("run")
				n.must(n.take())
				n.part("take")
				var written counting
				count, err := n.writeLayer(&written, false, false)
				n.must(err)
				n.part("write")
				n.saved.wrote(true)
				n.saved.name(fmt.Sprint(b.N))
				n.state()
				n.part("state")
				_, err = n.askWithTimeout(map[string]any{"op": "inspect"}, time.Second)
				n.must(err)
				n.part("inspect")
				bytes, pages = int(written), count
			}
			n.report()
			b.ReportMetric(float64(bytes), "bytes")
			b.ReportMetric(float64(pages), "pages")
		})
	}
}

type counting int

func (c *counting) Write(p []byte) (int, error) {
	*c += counting(len(p))
	return len(p), nil
}

// touching are programs that change so many MiB, whose content can be made
// smaller or not.
var touching = map[string]string{
	"text":  "import itertools\nmore = (str(i) for i in itertools.count())\ndef touch(b, n):\n  line = ' '.join(itertools.islice(more, 20000)).encode()\n  for i in range(0, len(b) - len(line), len(line)): b[i:i+len(line)] = line",
	"noise": "import random\ndef touch(b, n):\n  noise = random.randbytes(1 << 20)\n  for i in range(0, len(b), 1 << 20): b[i:i+(1 << 20)] = noise[i % 7919:] + noise[:i % 7919]",
}

// BenchmarkSnapshot is what keeping, rewinding, forking and resuming cost for
// a program that changes so much memory in each run.
func BenchmarkSnapshot(b *testing.B) {
	for _, size := range []int{1, 16, 64} {
		for kind, code := range touching {
			b.Run(fmt.Sprintf("%dMiB/%s", size, kind), func(b *testing.B) { benchmarkSnapshot(b, size, code) })
		}
	}
}

func benchmarkSnapshot(b *testing.B, size int, code string) {
	p := benchedProgram(b, "python")
	n := newBenched(b, p, newPages(), nil)
	defer n.discard()
	n.exec(fmt.Sprintf("%s\nb = bytearray(%d)\ntouch(b, 0)\nimport zlib", code, size<<20))
	_, err := n.keep(wire.SnapshotBody{}, io.Discard)
	n.must(err)
	written := 0
	for b.Loop() {
		n.exec("touch(b, 1)")
		n.begin()
		n.must(n.take())
		n.part("take")
		var c counting
		_, err := n.writeLayer(&c, false, false)
		n.must(err)
		n.part("write")
		written = int(c)
		n.saved.wrote(true)
		n.saved.name("m")
		n.exec("touch(b, 2)")
		n.begin()
		n.must(n.restoreTo(n.saved.find("m")))
		n.part("rewind")
		fork := newBenched(b, p, n.saved.pages, &n.saved)
		fork.exec("x = b[0]")
		n.part("fork")
		fork.discard()
		var whole bytes.Buffer
		_, err = n.writeLayer(&whole, true, false)
		n.must(err)
		state := n.state()
		n.begin()
		again := newBenchedFrom(b, p, newPages(), state, whole.Bytes())
		again.exec("x = b[0]")
		n.part("resume")
		again.discard()
	}
	n.report()
	b.ReportMetric(float64(written), "bytes")
}

func newBenchedFrom(b *testing.B, p *program, pages *pages, state, layer []byte) *benched {
	in := &instance{program: p, log: io.Discard}
	in.worker = &worker{conn: wire.NewConn(&wiretest.Recorder{}), folders: folders{}, pages: pages}
	in.connect(in.worker.conn)
	in.saved.pages = pages
	n := &benched{instance: in, b: b, parts: map[string]time.Duration{}}
	a := newArriving(func(int) {})
	a.frames = [][]byte{layer, {}}
	n.must(in.resumeFrom(wire.ResumeBody{State: state, Layers: 1}, a))
	n.must(in.open(false))
	return n
}
