package catalog

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"

	"paddock/internal/bindings"
	"paddock/internal/bindings/stub"
	"paddock/internal/fault"
)

func open(t testing.TB, of map[string][]bindings.Tool) *Catalog {
	t.Helper()
	c, err := New()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(c.Close(), c.Close()); err != nil {
			t.Error(err)
		}
	})
	for name, tools := range of {
		if err := c.Update(name, tools); err != nil {
			t.Fatal(err)
		}
	}
	return c
}

// names gives what a search finds, as server/tool.
func names(t testing.TB, c *Catalog, q Query) []string {
	t.Helper()
	hits, err := c.Search(t.Context(), q)
	if err != nil {
		t.Fatal(err)
	}
	all := []string{}
	for _, h := range hits {
		all = append(all, h.Server+"/"+h.Tool)
	}
	return all
}

// TestWhatIsLookedForIsFound states the hit rate over 30 queries: the tool is the
// first hit in at least 26, and among the first five in all but one.
func TestWhatIsLookedForIsFound(t *testing.T) {
	c := open(t, servers())
	first, five := 0, 0
	for _, w := range wanted {
		found := names(t, c, Query{Text: w.query, Limit: 5})
		switch slices.Index(found, w.server+"/"+w.tool) {
		case 0:
			first++
			five++
		case -1:
			t.Logf("%q finds %v", w.query, found)
		default:
			five++
			t.Logf("%q finds first %v", w.query, found)
		}
	}
	t.Logf("of %d queries, %d find it first and %d among five", len(wanted), first, five)
	if first < 26 {
		t.Errorf("first = %d, want at least 26", first)
	} else if five < len(wanted)-1 {
		t.Errorf("five = %d, want at least %d", five, len(wanted)-1)
	}
}

// TestToolsAreFoundByWhatIsMeant states the hit rate over 20 queries that say something in
// other words than the tools do: among the first five in at least 15. Without related words
// it is 5.
func TestToolsAreFoundByWhatIsMeant(t *testing.T) {
	all := servers()
	for name, lines := range strange {
		for line := range strings.SplitSeq(strings.TrimSpace(lines), "\n") {
			all[name] = append(all[name], tool(line))
		}
	}
	c := open(t, all)
	five := 0
	for _, w := range meant {
		found := names(t, c, Query{Text: w.query, Limit: 5})
		if slices.Contains(found, w.server+"/"+w.tool) {
			five++
		} else {
			t.Logf("%q finds %v", w.query, found)
		}
	}
	t.Logf("of %d queries, %d find it among five", len(meant), five)
	if five < 15 {
		t.Errorf("only %d among five", five)
	}
}

// TestKeywordsDoNotMakeAToolTheFirst holds attack 88: a server that says every word
// of every query, many times and everywhere but in the name that is right.
func TestKeywordsDoNotMakeAToolTheFirst(t *testing.T) {
	all := servers()
	c := open(t, all)
	queries := []string{}
	for _, w := range wanted {
		queries = append(queries, w.query)
	}
	every := strings.Join(queries, " ")
	stuffed := []bindings.Tool{}
	for i, text := range []string{every, strings.Repeat("delete create list read write file event sum graph invoice ", 50), strings.Repeat(every+" ", 100)} {
		stuffed = append(stuffed, bindings.Tool{Name: fmt.Sprint("best_tool_", i), Title: text, Description: text, Input: json.RawMessage(`{"type":"object","properties":{"file":true,"event":true,"invoice":true,"sum":true}}`)})
	}
	for i := range 10 { // one for each of a few queries, word for word, again and again
		stuffed = append(stuffed, bindings.Tool{Name: fmt.Sprint("x", i), Title: strings.Repeat(wanted[i*3].query+" ", 20), Description: strings.Repeat(wanted[i*3].query+" ", 200)})
	}
	before := map[string][]string{}
	for _, w := range wanted {
		before[w.query] = names(t, c, Query{Text: w.query, Limit: 5})
	}
	if err := c.Update("evil", stuffed); err != nil {
		t.Fatal(err)
	}
	lost := 0
	for _, w := range wanted {
		right := w.server + "/" + w.tool
		found := names(t, c, Query{Text: w.query, Limit: 5})
		if before[w.query][0] == right && found[0] != right {
			lost++
			t.Logf("%q finds %v", w.query, found)
		}
		if slices.Contains(before[w.query][:min(3, len(before[w.query]))], right) && !slices.Contains(found, right) {
			t.Errorf("%q does not find %s among five: %v", w.query, right, found)
		}
	}
	t.Logf("%d of %d lost their first place", lost, len(wanted))
	if lost > 1 {
		t.Errorf("%d lost their first place", lost)
	}
}

func TestAServersToolsAreReplacedAndRemoved(t *testing.T) {
	c := open(t, servers())
	if found := names(t, c, Query{Text: "get-sum"}); found[0] != "everything/get-sum" {
		t.Fatalf("found %v", found)
	}
	rows := len(c.rows)
	echo := c.servers["everything"].rows["echo"]
	tools := servers()["everything"]
	tools[slices.IndexFunc(tools, func(t bindings.Tool) bool { return t.Name == "get-sum" })].Description = "Multiplies zebras"
	if err := c.Update("everything", tools); err != nil {
		t.Fatal(err)
	}
	if len(c.rows) != rows {
		t.Errorf("what did not change was indexed again: len(c.rows) = %d, want %d", len(c.rows), rows)
	} else if c.servers["everything"].rows["echo"] != echo {
		t.Errorf(`what did not change was indexed again: c.servers["everything"].rows["echo"] = %d, want %d`,
			c.servers["everything"].rows["echo"], echo)
	}
	if found := names(t, c, Query{Text: "zebras"}); !slices.Equal(found, []string{"everything/get-sum"}) {
		t.Errorf("found %v", found)
	}
	if found := names(t, c, Query{Text: "two", Servers: []string{"everything"}}); len(found) != 0 {
		t.Errorf("what it was is still found: %v", found)
	}
	if err := c.Update("everything", nil); err != nil {
		t.Fatal(err)
	}
	if found := names(t, c, Query{Text: "zebras sum echo"}); slices.ContainsFunc(found, func(s string) bool { return strings.HasPrefix(s, "everything/") }) {
		t.Errorf("found %v", found)
	}
	if err := c.Update("unknown", nil); err != nil {
		t.Error(err)
	}
}

func TestOnlyTheServersThatAreNamedAreSearched(t *testing.T) {
	c := open(t, servers())
	for _, q := range []string{"list", "file entity list", "", "s1", "server"} {
		for _, f := range names(t, c, Query{Text: q, Servers: []string{"memory", "nowhere"}, Limit: 100}) {
			if !strings.HasPrefix(f, "memory/") {
				t.Errorf("%q finds %s", q, f)
			}
		}
		if found := names(t, c, Query{Text: q, Servers: []string{}}); len(found) != 0 {
			t.Errorf("in no server %q finds %v", q, found)
		}
	}
	if found := names(t, c, Query{Text: "entities", Servers: []string{"memory"}}); len(found) == 0 {
		t.Error("nothing is found")
	}
	if found := names(t, c, Query{Text: "s1 s2 s3"}); len(found) != 0 {
		t.Errorf("the numbers of servers are found: %v", found)
	}
}

func TestQueriesAreWordsAndNoSyntax(t *testing.T) {
	c := open(t, servers())
	for _, q := range []string{`"`, `a"b`, `NEAR(x`, `name:`, `-x`, `*`, `a OR`, `AND NOT`, `(`, `^x`, "x\x00y", `{name} : x`, "'; DROP TABLE tools; --", "🎉", "天气", "ß", "İ", "\xff\xfe", strings.Repeat("word ", 10_000), strings.Repeat("x", 100_000)} {
		if _, err := c.Search(t.Context(), Query{Text: q}); err != nil {
			t.Errorf("%.40q: %v", q, err)
		}
	}
	if found := names(t, c, Query{Text: "get-sum"}); found[0] != "everything/get-sum" {
		t.Errorf("found %v", found)
	}
	if err := c.Update("weather", []bindings.Tool{{Name: "w", Description: "查询天气预报"}, {Name: "u", Description: "Größe ändern"}}); err != nil {
		t.Fatal(err)
	}
	for q, want := range map[string]string{"天气": "weather/w", "grosse": "", "große": "weather/u", "andern": "weather/u"} {
		if found := names(t, c, Query{Text: q}); want != "" && (len(found) == 0 || found[0] != want) {
			t.Errorf("%s finds %v", q, found)
		}
	}
}

func TestLevelsTellMoreAndMore(t *testing.T) {
	input := json.RawMessage(`{"type":"object","properties":{"z":{"type":"number"},"a":{"type":"string"}},"required":["z"]}`)
	c := open(t, map[string][]bindings.Tool{"my-server": {{Name: "get-sum", Description: "First line.\n\nSecond\u202e line.", Input: input}}})
	full := bindings.Tool{Name: "get-sum", Description: "First line.\n\nSecond\u202e line.", Input: input}
	for _, want := range []struct {
		q   Query
		hit Hit
	}{
		{Query{Level: Names}, Hit{}},
		{Query{}, Hit{Description: "First line. Second line.", Signature: "get_sum(z: float, a: str = ...) -> Any", Import: "from servers.my_server.tools import get_sum"}},
		{Query{Language: stub.TypeScript}, Hit{Description: "First line. Second line.", Signature: "get_sum(args: { z: number; a?: string }): Promise<any>", Import: `import { get_sum } from "servers/my_server"`}},
		{Query{Level: Full}, Hit{Description: "First line.\n\nSecond line.", Signature: "get_sum(z: float, a: str = ...) -> Any", Import: "from servers.my_server.tools import get_sum", Found: &full}},
	} {
		want.q.Text, want.hit.Server, want.hit.Tool = "sum", "my-server", "get-sum"
		hits, err := c.Search(t.Context(), want.q)
		if err != nil {
			t.Fatalf("got error %v, want none", err)
		}
		if len(hits) != 1 {
			t.Fatalf("len(hits) = %d, want 1: %+v", len(hits), hits)
		}
		hits[0].Score = 0
		if !reflect.DeepEqual(hits[0], want.hit) {
			t.Errorf("at %q it is %+v", want.q.Level, hits[0])
		}
	}
	if _, err := c.Search(t.Context(), Query{Level: "all"}); fault.KindOf(err) != fault.Invalid {
		t.Errorf("a level that is none: %v", err)
	}
}

func TestTiesAndRepeatsAreInOneOrder(t *testing.T) {
	tools := []bindings.Tool{}
	for i := range 50 {
		tools = append(tools, tool(fmt.Sprintf("thing_%c%c | Does a thing | x", 'a'+i/26, 'a'+i%26)))
	}
	var want []string
	for i := range 3 {
		c := open(t, nil)
		for _, server := range [][]string{{"a", "b"}, {"b", "a"}, {"a", "b"}}[i] {
			if err := c.Update(server, tools); err != nil {
				t.Fatal(err)
			}
		}
		got := names(t, c, Query{Text: "thing", Limit: 100})
		if want == nil {
			want = got
		}
		if !slices.Equal(got, want) {
			t.Fatalf("%d: got %q, want %q", i, got, want)
		}
		if len(got) != 100 {
			t.Fatalf("%d: len(got) = %d, want 100: %q", i, len(got), got)
		}
		if all := names(t, c, Query{Limit: 100}); !slices.IsSortedFunc(all, func(a, b string) int { return strings.Compare(a[2:], b[2:]) }) {
			t.Errorf("nothing to look for finds %v", all)
		}
	}
}

func TestManySearchWhileOneUpdates(t *testing.T) {
	c := open(t, servers())
	var wait sync.WaitGroup
	for range 4 {
		wait.Go(func() {
			for range 25 {
				if _, err := c.Search(context.Background(), Query{Text: "read a file", Level: Full}); err != nil {
					t.Error(err)
				}
			}
		})
	}
	for i := range 25 {
		if err := c.Update("filesystem", servers()["filesystem"][i%10:]); err != nil {
			t.Error(err)
		}
	}
	wait.Wait()
}

// thousands are 5,000 tools of 25 servers.
func thousands() map[string][]bindings.Tool {
	all := map[string][]bindings.Tool{}
	for i := range 25 {
		for name, tools := range servers() {
			if made[name] == "" {
				continue
			}
			for j, t := range tools {
				t.Name = fmt.Sprintf("%s_v%d", t.Name, i*j)
				server := fmt.Sprint("server-", i)
				all[server] = append(all[server], t)
			}
		}
		for k := range all[fmt.Sprint("server-", i)] {
			all[fmt.Sprint("server-", i)][k].Name += fmt.Sprint("_", k)
		}
	}
	return all
}

func BenchmarkBuildFiveThousand(b *testing.B) {
	all := thousands()
	for b.Loop() {
		open(b, all)
	}
}

func BenchmarkSearchFiveThousand(b *testing.B) {
	c := open(b, thousands())
	for _, q := range []string{"create an invoice", "refund", "list every pull request of a repository", "get"} {
		b.Run(strings.ReplaceAll(q, " ", "_"), func(b *testing.B) {
			for b.Loop() {
				if _, err := c.Search(b.Context(), Query{Text: q}); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
	b.Run("linear_scan", func(b *testing.B) { // the same words looked for in every text
		for b.Loop() {
			n := 0
			for _, r := range c.rows {
				text := strings.ToLower(r.tool.Tool.Name + " " + r.tool.Tool.Description)
				for _, w := range []string{"create", "invoice"} {
					n += strings.Count(text, w)
				}
			}
		}
	})
}
