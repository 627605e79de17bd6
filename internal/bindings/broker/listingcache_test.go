package broker

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"paddock/internal/bindings"
	"paddock/internal/bindings/catalog"
	"paddock/internal/bindings/upstream"
)

// counted counts how often a server is connected to, and asked for its tools.
func (c *counterparty) counted() (connects, lists *atomic.Int64) {
	connects, lists = &atomic.Int64{}, &atomic.Int64{}
	c.mcp.AddReceivingMiddleware(func(next mcp.MethodHandler) mcp.MethodHandler {
		return func(ctx context.Context, method string, r mcp.Request) (mcp.Result, error) {
			switch method {
			case "initialize", "server/discover":
				connects.Add(1)
			case "tools/list":
				lists.Add(1)
			}
			return next(ctx, method, r)
		}
	})
	return connects, lists
}

// old has a Broker be old enough to list servers again on its own.
func old(b *Broker) *Broker {
	b.born = time.Now().Add(-time.Hour)
	return b
}

// aged makes the listings on the disk out of date.
func aged(t *testing.T, dir string, change func(*storedListing)) {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(dir, "listings", "*.json"))
	if err != nil {
		t.Fatalf("there are no listings: got error %v, want none", err)
	}
	if len(paths) == 0 {
		t.Fatal("there are no listings: paths is empty, want some")
	}
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		var s storedListing
		if err := json.Unmarshal(text, &s); err != nil {
			t.Fatal(err)
		}
		change(&s)
		if text, err = json.Marshal(s); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

func eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); !is(); {
		if time.Now().After(deadline) {
			t.Fatalf("%s does not come about", what)
		}
		time.Sleep(time.Millisecond)
	}
}

func TestSessionsThatCallNothingShareOneConnection(t *testing.T) {
	c := serve(t)
	connects, lists := c.counted()
	b := open(t, Config{Servers: []Definition{c.definition("party")}, Dir: t.TempDir()})
	root := t.TempDir()
	var sessions sync.WaitGroup
	for i := range 50 {
		sessions.Go(func() {
			s := Session{fmt.Sprint("owner-", i%3), fmt.Sprint("s-", i)}
			for range 3 {
				if err := b.Provide(t.Context(), s, filepath.Join(root, fmt.Sprint(i))); err != nil {
					t.Error(err)
				}
			}
			if _, err := b.Search(t.Context(), s, catalog.Query{Text: "weather"}, ""); err != nil {
				t.Error(err)
			}
		})
	}
	sessions.Wait()
	if lists.Load() > 2 { // both eras may be tried
		t.Errorf("the server was listed %d times, want at most 2", lists.Load())
	} else if connects.Load() > 2 {
		t.Errorf("the server was connected to %d times, want at most 2", connects.Load())
	}
	for i := range 50 {
		if _, err := os.Stat(filepath.Join(root, fmt.Sprint(i), "party", "echo.py")); err != nil {
			t.Error(err)
		}
	}
}

func TestAnotherProcessShowsToolsWithoutTheServer(t *testing.T) {
	c, dir := serve(t), t.TempDir()
	definition := c.definition("party")
	first := open(t, Config{Servers: []Definition{definition}, Dir: dir})
	if err := first.Provide(t.Context(), alice, filepath.Join(t.TempDir(), "servers")); err != nil {
		t.Fatal(err)
	}
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	_, lists := c.counted()
	b := open(t, Config{Servers: []Definition{definition}, Dir: dir})
	folder := filepath.Join(t.TempDir(), "servers")
	if err := b.Provide(t.Context(), alice, folder); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(folder, "party", "echo.py")); err != nil {
		t.Error(err)
	}
	if lists.Load() != 0 {
		t.Errorf("the server was asked %d times", lists.Load())
	}
	hits, err := b.Search(t.Context(), alice, catalog.Query{Text: "temperature"}, "")
	switch {
	case err != nil:
		t.Errorf("got error %v, want none", err)
	case len(hits) == 0:
		t.Error("hits is empty, want some")
	case hits[0].Tool != "weather":
		t.Errorf(`hits[0].Tool = %q, want "weather"`, hits[0].Tool)
	}
}

func TestAnOldListingIsShownAtOnceAndMadeAgainOnTheSide(t *testing.T) {
	c, dir := serve(t), t.TempDir()
	definition := c.definition("party")
	first := open(t, Config{Servers: []Definition{definition}, Dir: dir})
	folder := filepath.Join(t.TempDir(), "servers")
	if err := first.Provide(t.Context(), alice, folder); err != nil {
		t.Fatal(err)
	}
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	aged(t, dir, func(s *storedListing) { s.Until = time.Now().Add(-time.Minute) })
	c.add(&mcp.Tool{Name: "paint"}, `{"type":"object"}`, func(json.RawMessage) (*mcp.CallToolResult, error) { return text("done"), nil })
	_, lists := c.counted()

	short := open(t, Config{Servers: []Definition{definition}, Dir: dir})
	if err := short.Provide(t.Context(), alice, folder); err != nil {
		t.Fatal(err)
	}
	if err := short.Close(); err != nil {
		t.Fatal(err)
	}
	if lists.Load() != 0 {
		t.Error("a single short run had the server listed")
	}

	b := old(open(t, Config{Servers: []Definition{definition}, Dir: dir}))
	eventually(t, "the new tool's file", func() bool {
		if err := b.Provide(t.Context(), alice, folder); err != nil {
			t.Fatal(err)
		}
		_, err := os.Stat(filepath.Join(folder, "party", "paint.py"))
		return err == nil
	})
	if lists.Load() > 2 {
		t.Errorf("it was listed %d times", lists.Load())
	}
}

func TestAServerThatDoesNotAnswerKeepsNobodyWaitingTwice(t *testing.T) {
	asked := &atomic.Int64{}
	release := make(chan struct{})
	silent := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked.Add(1)
		select {
		case <-release:
		case <-r.Context().Done():
		}
	}))
	t.Cleanup(silent.Close)
	t.Cleanup(func() { close(release) })
	good, dir := serve(t), t.TempDir()
	config := Config{Dir: dir, Servers: []Definition{
		good.definition("good"), {Server: upstream.Server{Name: "silent", URL: silent.URL}},
	}}
	folder := filepath.Join(t.TempDir(), "servers")
	known := open(t, Config{Dir: dir, Servers: config.Servers[:1]}) // so that only the silent one is waited for
	if err := known.Provide(t.Context(), alice, folder); err != nil {
		t.Fatal(err)
	}
	if err := known.Close(); err != nil {
		t.Fatal(err)
	}
	b := open(t, config)
	b.listings.timeout = 300 * time.Millisecond
	provide := func(b *Broker) time.Duration {
		t.Helper()
		began := time.Now()
		if err := b.Provide(t.Context(), alice, folder); err != nil {
			t.Fatal(err)
		}
		return time.Since(began)
	}
	provide(b)
	if _, err := os.Stat(filepath.Join(folder, "good", "echo.py")); err != nil {
		t.Errorf("the other server's files are missing: %v", err)
	}
	if text := contents(t, filepath.Join(folder, "silent"))["__init__.py"]; !strings.HasPrefix(text, "raise ImportError(") {
		t.Errorf(`who imports it is told %q, want it to begin with "raise ImportError("`, text)
	} else if !strings.Contains(text, "not told") {
		t.Errorf(`who imports it is told %q, want "not told" in it`, text)
	}
	b.listings.timeout = time.Hour // who waits now, waits for ever
	provide(b)
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	next := open(t, config) // and so in another process
	next.listings.timeout = time.Hour
	provide(next)
	if asked.Load() == 0 {
		t.Error("the server was never asked")
	}
}

// A program that names a server gets its tools, however often others waited for nothing.
func TestAProgramWaitsForAServerThatItNames(t *testing.T) {
	ready, slow := make(chan struct{}), serve(t)
	inner := slow.Config.Handler
	slow.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		<-ready
		inner.ServeHTTP(w, r)
	})
	b := open(t, Config{Dir: t.TempDir(), Servers: []Definition{slow.definition("slow-one")}})
	b.listings.timeout = time.Millisecond
	folder := filepath.Join(t.TempDir(), "servers")
	provide := func(program string) map[string]string {
		t.Helper()
		b.Await(t.Context(), alice, program)
		if err := b.Provide(t.Context(), alice, folder); err != nil {
			t.Fatal(err)
		}
		return contents(t, filepath.Join(folder, "slow_one"))
	}
	for _, program := range []string{"", "import slow_ones, my_slow_one", "print(1)"} {
		if text := provide(program)["__init__.py"]; !strings.Contains(text, "not told") {
			t.Fatalf("%q: %s", program, text)
		}
	}
	b.listings.namedTimeout = time.Millisecond
	if text := provide("from servers import slow_one")["__init__.py"]; !strings.Contains(text, "not told") {
		t.Fatalf("too slow for who names it: %s", text)
	}
	b.listings.namedTimeout = time.Hour
	go close(ready)
	if files := provide("import x from 'servers/slow-one'"); files["echo.py"] == "" {
		t.Errorf("who names it has %v", files)
	}
}

func TestAServerThatFailsIsLeftAlone(t *testing.T) {
	works, broken := &atomic.Bool{}, serve(t)
	inner := broken.Config.Handler
	broken.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if works.Load() {
			inner.ServeHTTP(w, r)
			return
		}
		http.Error(w, "broken", http.StatusInternalServerError)
	})
	config := Config{Dir: t.TempDir(), Servers: []Definition{{Server: upstream.Server{Name: "broken", URL: broken.URL}}}}
	b := open(t, config)
	folder := filepath.Join(t.TempDir(), "servers")
	for range 100 {
		if err := b.Provide(t.Context(), alice, folder); err != nil {
			t.Fatal(err)
		}
	}
	p := b.listings.entry(newServerBinding(config.Servers[0], nil).key)
	p.mu.Lock()
	fails, rests := p.fails, p.retryAt
	p.mu.Unlock()
	if text := contents(t, filepath.Join(folder, "broken"))["__init__.py"]; !strings.Contains(text, "500") {
		t.Errorf("who imports it is told %q", text)
	}
	elsewhere := filepath.Join(t.TempDir(), "servers")
	if err := open(t, config).Provide(t.Context(), alice, elsewhere); err != nil {
		t.Fatal(err)
	}
	if text := contents(t, filepath.Join(elsewhere, "broken"))["index.js"]; !strings.Contains(text, "500") {
		t.Errorf("who imports it in another process is told %q", text)
	}
	if fails == 0 || fails > 3 {
		t.Errorf("it was listed %d times in vain, want from 1 to 3", fails)
	}
	if earliest := time.Now().Add(-time.Minute); !rests.After(earliest) {
		t.Errorf("it rests until %v, want it to be after %v", rests, earliest)
	}
	if _, err := b.Search(t.Context(), alice, catalog.Query{Text: "x"}, ""); err == nil {
		t.Error("a search tells nothing of it")
	}
	// When it works again somebody asks for it, and another process has it at once.
	works.Store(true)
	operator := open(t, config)
	if o, err := operator.Offer(t.Context(), alice, "broken"); err != nil {
		t.Errorf("it offers: got error %v, want none", err)
	} else if !slices.Contains(o.Tools, "echo") {
		t.Errorf(`it offers: o.Tools = %q, want "echo" in it`, o.Tools)
	}
	if err := b.Provide(t.Context(), alice, folder); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(folder, "broken", "echo.py")); err != nil {
		t.Error(err)
	}
}

func TestWhatIsWrongOnTheDiskIsAsIfNothingWere(t *testing.T) {
	c := serve(t)
	for name, change := range map[string]func(*storedListing){
		"of another server": func(s *storedListing) { s.Key = "x" },
		"another version":   func(s *storedListing) { s.Version++ },
		"a tool twice":      func(s *storedListing) { s.Tools = append(s.Tools, s.Tools[0]) },
		"a tool's name":     func(s *storedListing) { s.Tools[0].Name = "" },
		"a schema":          func(s *storedListing) { s.Tools[0].Input = []byte("{") },
		"too many tools": func(s *storedListing) {
			for i := range maxListed {
				s.Tools = append(s.Tools, storedTool{Name: fmt.Sprint(i)})
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			config := Config{Servers: []Definition{c.definition("party")}, Dir: dir}
			first := open(t, config)
			if _, err := first.Offer(t.Context(), alice, "party"); err != nil {
				t.Fatal(err)
			}
			if err := first.Close(); err != nil {
				t.Fatal(err)
			}
			aged(t, dir, change)
			b := open(t, config)
			o, err := b.Offer(t.Context(), alice, "party")
			switch {
			case err != nil:
				t.Errorf("got error %v, want none", err)
			case !slices.Contains(o.Tools, "echo"):
				t.Errorf(`o.Tools = %q, want "echo" in it`, o.Tools)
			case slices.Contains(o.Tools, "1"):
				t.Errorf(`o.Tools = %q, want no "1" in it`, o.Tools)
			}
		})
	}
}

func TestAListingComesBackToTheByte(t *testing.T) {
	dir, yes := t.TempDir(), true
	p := &cacheEntry{key: "k", file: filepath.Join(dir, "x.json")}
	tools := []bindings.Tool{{Name: "a", Title: "<b>", Description: "ü\u2028", Input: json.RawMessage("{ \"type\" :\"object\" }"), Output: json.RawMessage("true"), Annotations: bindings.Annotations{ReadOnly: &yes}}}
	p.storeLocked(newListing(tools), time.Now().Add(time.Minute), time.Now())
	p.saveLocked(nil)
	again := &cacheEntry{key: "k", file: p.file}
	again.loadLocked()
	switch {
	case again.listing == nil:
		t.Error("it comes back: again.listing is nil, want one")
	case again.listing.digest != p.listing.digest:
		t.Errorf("it comes back: again.listing.digest = %q, want %q: %+v",
			again.listing.digest, p.listing.digest, again.listing)
	case string(again.listing.tools[0].Input) != string(tools[0].Input):
		t.Errorf("it comes back: string(again.listing.tools[0].Input) = %q, want %q",
			string(again.listing.tools[0].Input), string(tools[0].Input))
	}
	other := &cacheEntry{key: "another", file: p.file}
	if other.loadLocked(); other.listing != nil {
		t.Error("another server's listing is taken")
	}
}

func TestListingsInMemoryAreBounded(t *testing.T) {
	x := newListingCache(&Broker{}, "")
	for i := range 20 {
		p := x.entry(fmt.Sprint(i))
		p.used, p.listing = time.Unix(int64(i), 0), &listing{size: maxCached / 10}
	}
	x.trim()
	if x.entry("0").listing != nil {
		t.Error("the oldest listing is there, want none")
	}
	if x.entry("19").listing == nil {
		t.Error("the newest listing is not there, want one")
	}
	for i := range maxEntries + 100 {
		x.entry(fmt.Sprint("more-", i))
	}
	if len(x.entries) > maxEntries {
		t.Errorf("there are %d places", len(x.entries))
	}
}
