package broker

import (
	"testing"

	"paddock/internal/bindings"
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
