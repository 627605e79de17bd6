package broker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"paddock/internal/bindings"
	"paddock/internal/bindings/catalog"
)

// maxIndexes is how many sets of servers are kept indexed: most sessions have the same.
const maxIndexes = 16

// indexes are catalogues of sets of servers, the tools of each as they were when it was
// last asked. They are made again when they are missing.
type indexes struct {
	mu  sync.Mutex // guards what follows, and is held while an index is brought up to date
	all map[string]*index
}

type index struct {
	catalog *catalog.Catalog
	tools   map[string][]bindings.Tool // as they were indexed; the pool's own slices
	used    time.Time
}

// of gives the index of servers with these tools.
func (x *indexes) of(set string, tools map[string][]bindings.Tool) (*index, error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	one := x.all[set]
	if one == nil {
		c, err := catalog.New()
		if err != nil {
			return nil, fmt.Errorf("making a catalogue: %w", err)
		}
		one = &index{catalog: c, tools: map[string][]bindings.Tool{}}
		x.makeRoomLocked()
		x.all[set] = one
	}
	one.used = time.Now()
	for name, some := range tools {
		if had, ok := one.tools[name]; ok && same(had, some) {
			continue
		}
		if err := one.catalog.Update(name, some); err != nil {
			return nil, fmt.Errorf("indexing the tools of %q: %w", name, err)
		}
		one.tools[name] = some
	}
	return one, nil
}

// same tells whether two slices are one.
func same(a, b []bindings.Tool) bool {
	return len(a) == len(b) && (len(a) == 0 || &a[0] == &b[0])
}

func (x *indexes) makeRoomLocked() {
	for len(x.all) >= maxIndexes {
		oldest := slices.MinFunc(slices.Collect(maps.Keys(x.all)), func(a, b string) int { return x.all[a].used.Compare(x.all[b].used) })
		// Who still searches in it gets an error, and may search again.
		_ = x.all[oldest].catalog.Close()
		delete(x.all, oldest)
	}
}

func (x *indexes) close() {
	x.mu.Lock()
	defer x.mu.Unlock()
	for set, one := range x.all {
		_ = one.catalog.Close()
		delete(x.all, set)
	}
}

// Search finds tools of a session's servers by words; server narrows it to one, where
// it is not empty. Servers that cannot be asked for their tools now are left out, unless
// none can. Tools that the servers' policies deny are not found.
func (b *Broker) Search(ctx context.Context, s Session, q catalog.Query, server string) ([]catalog.Hit, error) {
	all := b.serversOf(s)
	q.Servers = nil
	if server != "" {
		one, err := b.find(s, server)
		if err != nil {
			return nil, err
		}
		q.Servers = []string{one.Name}
	}
	tools := map[string][]bindings.Tool{}
	var set []string
	var errs []error
	for _, name := range slices.Sorted(maps.Keys(all)) {
		some, err := b.pool.Tools(ctx, all[name].keyFor(s))
		if err != nil {
			errs = append(errs, fmt.Errorf("asking %q for its tools: %w", name, err))
			continue
		}
		tools[name], set = some, append(set, name+"\x00"+all[name].key)
	}
	if len(tools) == 0 && len(errs) > 0 {
		return nil, errors.Join(errs...)
	}
	x, err := b.indexes.of(strings.Join(set, "\x00"), tools)
	if err != nil {
		return nil, err
	}
	hits, err := x.catalog.Search(ctx, q)
	return slices.DeleteFunc(hits, func(h catalog.Hit) bool {
		at := slices.IndexFunc(tools[h.Server], func(t bindings.Tool) bool { return t.Name == h.Tool })
		return at >= 0 && all[h.Server].Policy.Of(tools[h.Server][at]) == Denied
	}), err
}

// Result is a hit as programs and clients get it.
type Result struct {
	catalog.Hit
	Title        string          `json:"title,omitempty"`
	InputSchema  json.RawMessage `json:"input_schema,omitempty"`
	OutputSchema json.RawMessage `json:"output_schema,omitempty"`
}

// Found makes results of hits.
func Found(hits []catalog.Hit) []Result {
	all := make([]Result, 0, len(hits))
	for _, h := range hits {
		r := Result{Hit: h}
		if t := h.Found; t != nil {
			r.Title, r.InputSchema, r.OutputSchema = t.Title, t.Input, t.Output
		}
		all = append(all, r)
	}
	return all
}
