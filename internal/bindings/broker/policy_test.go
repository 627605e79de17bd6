package broker

import (
	"context"
	"slices"
	"strings"
	"testing"

	"paddock/internal/bindings"
	"paddock/internal/fault"
)

func TestPolicies(t *testing.T) {
	yes, no := true, false
	reads := bindings.Annotations{ReadOnly: &yes, OpenWorld: &no}
	for name, c := range map[string]struct {
		policy Policy
		tool   bindings.Tool
		want   Verdict
	}{
		"nothing is said":                     {Policy{}, bindings.Tool{Name: "a"}, Allowed},
		"it is allowed":                       {Policy{Allow: []string{"get-*"}}, bindings.Tool{Name: "get-a"}, Allowed},
		"another one is":                      {Policy{Allow: []string{"get-*"}}, bindings.Tool{Name: "set-a"}, Denied},
		"what is denied is denied":            {Policy{Allow: []string{"*"}, Ask: []string{"a"}, Deny: []string{"a"}}, bindings.Tool{Name: "a"}, Denied},
		"asking comes before allowing":        {Policy{Allow: []string{"a"}, Ask: []string{"?"}}, bindings.Tool{Name: "a"}, Asks},
		"asking allows":                       {Policy{Allow: []string{"b"}, Ask: []string{"a"}}, bindings.Tool{Name: "a"}, Asks},
		"a star takes slashes":                {Policy{Deny: []string{"a*z"}}, bindings.Tool{Name: "a/b/z"}, Denied},
		"brackets are characters":             {Policy{Deny: []string{"[a]"}}, bindings.Tool{Name: "a"}, Allowed},
		"themselves":                          {Policy{Deny: []string{`[a]\`}}, bindings.Tool{Name: `[a]\`}, Denied},
		"it says that it reads":               {Policy{Allow: []string{ReadOnly}}, bindings.Tool{Name: "a", Annotations: reads}, Allowed},
		"it says nothing of reading":          {Policy{Allow: []string{ReadOnly}}, bindings.Tool{Name: "a"}, Denied},
		"silence is destructive":              {Policy{Ask: []string{Destructive}}, bindings.Tool{Name: "a"}, Asks},
		"reading is not":                      {Policy{Ask: []string{Destructive}}, bindings.Tool{Name: "a", Annotations: reads}, Allowed},
		"neither is adding":                   {Policy{Ask: []string{Destructive}}, bindings.Tool{Name: "a", Annotations: bindings.Annotations{Destructive: &no}}, Allowed},
		"silence is the open world":           {Policy{Deny: []string{OpenWorld}}, bindings.Tool{Name: "a"}, Denied},
		"who says otherwise is believed here": {Policy{Deny: []string{OpenWorld}}, bindings.Tool{Name: "a", Annotations: reads}, Allowed},
	} {
		if err := c.policy.Check(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if got := c.policy.Of(c.tool); got != c.want {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
	for _, bad := range []string{"", "@all", "@"} {
		if (Policy{Deny: []string{bad}}).Check() == nil {
			t.Errorf("%q is taken", bad)
		}
	}
}

// TestWhatAnOperatorSaysOfAServerCountsUnderAnyName has a session bind a server once more
// that the operator has rules for.
func TestWhatAnOperatorSaysOfAServerCountsUnderAnyName(t *testing.T) {
	c := serve(t)
	d := c.definition("party")
	d.Policy = Policy{Ask: []string{"delete-all"}, Deny: []string{"broken"}}
	asked := 0
	b := open(t, Config{
		Servers: []Definition{d},
		Approve: func(context.Context, Asked) error { asked++; return fault.New(fault.Denied, "somebody said no") },
		Chosen:  func(Session) (*[]string, error) { return &[]string{}, nil }, // it does not even have the operator's
	})
	for name, url := range map[string]string{
		"alias": d.URL, "path": d.URL + "/", "query": d.URL + "?x=1", "fragment": d.URL + "#x",
		"loopback": strings.Replace(d.URL, "127.0.0.1", "localhost", 1), "mapped": strings.Replace(d.URL, "127.0.0.1", "[::ffff:127.0.0.1]", 1),
	} {
		t.Run(name, func(t *testing.T) {
			alias := c.definition(name)
			alias.URL = url
			if one := b.newOwn(alias, &alice); len(one.rules) != 2 {
				t.Fatalf("its rules are %+v", one.rules)
			}
			offer, err := b.Bind(t.Context(), alice, alias)
			if err != nil { // some machines have no such name for it, or the server no such path
				t.Log(err)
				return
			}
			if slices.Contains(offer.Tools, "broken") {
				t.Errorf(`it offers: offer.Tools = %q, want no "broken" in it`, offer.Tools)
			} else if !slices.Contains(offer.Tools, "delete-all") {
				t.Errorf(`it offers: offer.Tools = %q, want "delete-all" in it`, offer.Tools)
			}
			if got := ask(t, b, run(), 1, name, "broken", `{}`); !strings.Contains(got, `"denied"`) {
				t.Errorf("the denied tool: got %q, want %q in it", got, `"denied"`)
			} else if !strings.Contains(got, "servers.party.tools") {
				t.Errorf(`the denied tool: got %q, want "servers.party.tools" in it`, got)
			}
			before := asked
			if got := ask(t, b, run(), 2, name, "delete-all", `{}`); !strings.Contains(got, "somebody said no") {
				t.Errorf(`the tool to ask about: got %q, want "somebody said no" in it`, got)
			} else if asked != before+1 {
				t.Errorf("the tool to ask about: asked = %d, want %d", asked, before+1)
			}
		})
	}
	other := serve(t).definition("other")
	if one := b.newOwn(other, &alice); len(one.rules) != 1 {
		t.Errorf("another place has the rules %+v", one.rules)
	}
}

// TestTheStrictestRuleOfAServerThatASessionBoundCounts has an operator's rules for what is
// bound, those for that host, and the session's own choice.
func TestTheStrictestRuleOfAServerThatASessionBoundCounts(t *testing.T) {
	c := serve(t)
	hosts := c.definition("party")
	hosts.Policy = Policy{Deny: []string{"weather"}, Ask: []string{"picture"}}
	b := open(t, Config{
		Servers: []Definition{hosts}, Bound: Policy{Allow: []string{ReadOnly, "several", "broken", "picture", "weather"}, Ask: []string{Destructive}, Deny: []string{"large"}},
		Approve: func(context.Context, Asked) error { return fault.New(fault.Denied, "somebody said no") },
	})
	d := c.definition("mine")
	d.Policy = Narrowed([]string{"*e*", "!broken"})
	offer, err := b.Bind(t.Context(), alice, d)
	if err != nil {
		t.Fatal(err)
	}
	if want := []string{"delete-all", "echo", "picture", "several"}; !slices.Equal(slices.Sorted(slices.Values(offer.Tools)), want) {
		t.Errorf("it offers %q", offer.Tools)
	}
	number := 0
	for tool, want := range map[string]string{
		"echo": `{"value":"a"}`, "picture": "somebody said no", "delete-all": "somebody said no", "weather": "servers.party.tools", "large": "mcp.tools", "broken": "mcp_bind_http",
	} {
		arguments := `{}`
		if tool == "echo" {
			arguments = `{"text":"a"}`
		}
		number++
		if got := ask(t, b, run(), number, "mine", tool, arguments); !strings.Contains(got, want) {
			t.Errorf("%s: %s", tool, got)
		}
	}
	if got := ask(t, b, run(), 20, "party", "large", `{}`); strings.Contains(got, "denied") {
		t.Errorf("the rules for what is bound count for the operator's own: %s", got)
	}
}

func TestASessionHasSomeToolsOfTheOperatorsServers(t *testing.T) {
	c := serve(t)
	d := c.definition("party")
	d.Policy = Policy{Deny: []string{"broken"}}
	for name, test := range map[string]struct {
		chosen []string
		want   string
	}{
		"the whole server":                {[]string{"party"}, "delete-all echo large picture several weather"},
		"some":                            {[]string{"party/e*", "party/weather"}, "echo weather"},
		"what it says that it only reads": {[]string{"party/@read-only"}, "echo"},
		"all but some":                    {[]string{"party/!l*", "party/!@destructive"}, "echo"},
		"what is denied to all":           {[]string{"party/broken", "party/echo"}, "echo"},
		"all, without some":               {[]string{"party", "party/!delete*", "other"}, "echo large picture several weather"},
		"none of them":                    {[]string{"party/"}, ""},
		"other servers":                   {[]string{}, "-"},
	} {
		t.Run(name, func(t *testing.T) {
			b := open(t, Config{Servers: []Definition{d}, Chosen: func(Session) (*[]string, error) { return &test.chosen, nil }})
			offer, err := b.Offer(t.Context(), alice, "party")
			if test.want == "-" {
				if fault.KindOf(err) != fault.NotFound {
					t.Errorf("it has the server: %v", err)
				}
				return
			}
			if got := strings.Join(slices.Sorted(slices.Values(offer.Tools)), " "); err != nil {
				t.Errorf("got error %v, want none", err)
			} else if got != test.want {
				t.Errorf("got %q, want %q", got, test.want)
			}
			got := ask(t, b, run(), 1, "party", "weather", `{}`)
			may := strings.Contains(test.want, "weather")
			if denied := strings.Contains(got, `"denied"`); denied == may {
				t.Errorf("the call is denied: got %v, want %v: %s", denied, !may, got)
			} else if denied && !strings.Contains(got, "create_session") {
				t.Errorf(`the refusal is %q, want "create_session" in it`, got)
			}
		})
	}
	b := open(t, Config{Servers: []Definition{d}})
	for entry, kind := range map[string]fault.Kind{"party": "", "party/get_*": "", "party/!@destructive": "", "party/@all": fault.Invalid, "party/": fault.Invalid, "party/!": fault.Invalid, "none/get_*": fault.NotFound} {
		err := b.CheckChosen(entry)
		if got, want := err != nil, kind != ""; got != want {
			t.Errorf("%s: there is an error: got %v, want %v: %v", entry, got, want, err)
		} else if err != nil && fault.KindOf(err) != kind {
			t.Errorf("%s: got an error of the kind %q, want %q: %v", entry, fault.KindOf(err), kind, err)
		}
	}
}

func TestNoPatternsAreNoTools(t *testing.T) {
	if got := Narrowed(nil).Of(bindings.Tool{Name: "a"}); got != Denied {
		t.Errorf("it is %v", got)
	}
}
