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
			if slices.Contains(offer.Tools, "broken") || !slices.Contains(offer.Tools, "delete-all") {
				t.Errorf("it offers %q", offer.Tools)
			}
			if got := ask(t, b, run(), 1, name, "broken", `{}`); !strings.Contains(got, `"denied"`) || !strings.Contains(got, "servers.party.tools") {
				t.Errorf("the denied tool: %s", got)
			}
			before := asked
			if got := ask(t, b, run(), 2, name, "delete-all", `{}`); !strings.Contains(got, "somebody said no") || asked != before+1 {
				t.Errorf("the tool to ask about: %s", got)
			}
		})
	}
	other := serve(t).definition("other")
	if one := b.newOwn(other, &alice); len(one.rules) != 1 {
		t.Errorf("another place has the rules %+v", one.rules)
	}
}
