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
	"paddock/internal/bindings/stub"
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
// it is not empty. What the servers told last is searched. Servers that have never told
// their tools are waited for, five seconds at most, and left out then, unless none is
// left. Tools that the servers' policies deny are not found.
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
	names := slices.Sorted(maps.Keys(all))
	looks := make([]pendingListing, len(names))
	for i, name := range names {
		looks[i] = b.listings.lookup(all[name], true)
	}
	tools, views := map[string][]bindings.Tool{}, map[string]*view{}
	var set []string
	var errs []error
	for i, name := range names {
		l, err := b.listings.wait(ctx, looks[i])
		if err != nil {
			errs = append(errs, fmt.Errorf("asking %q for its tools: %w", name, err))
			continue
		}
		views[name] = b.view(all[name], s.Owner, l)
		tools[name], set = views[name].untaught().tools, append(set, name+"\x00"+all[name].sign)
	}
	if len(tools) == 0 && len(errs) > 0 {
		return nil, errors.Join(errs...)
	}
	x, err := b.indexes.of(strings.Join(set, "\x00"), tools)
	if err != nil {
		return nil, err
	}
	hits, err := x.catalog.Search(ctx, q)
	for i, h := range hits {
		hits[i] = views[h.Server].tell(h, q)
	}
	return hits, err
}

// untaught gives the view without lessons: the same one for all owners, so that one
// index does for all of them.
func (v *view) untaught() *view {
	if v.base != nil {
		return v.base
	}
	return v
}

// tell has a hit tell what was learned of its tool.
func (v *view) tell(h catalog.Hit, q catalog.Query) catalog.Hit {
	if v == nil || !slices.Contains(v.taught, h.Tool) {
		return h
	}
	at := slices.IndexFunc(v.tools, func(t bindings.Tool) bool { return t.Name == h.Tool })
	if h.Signature != "" {
		_, results, _ := strings.Cut(stub.Names(v.tools[at : at+1])[0].Signature(q.Language), "(")
		name, _, _ := strings.Cut(h.Signature, "(") // another tool's may have taken the plain one
		h.Signature = name + "(" + results
	}
	if h.Found != nil {
		t := *h.Found
		t.Output = slices.Clone(v.tools[at].Output)
		h.Found = &t
	}
	return h
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
