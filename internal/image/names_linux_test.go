package image

import (
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"

	"paddock/internal/fault"
)

func TestNamesThatCannotBePulled(t *testing.T) {
	s := store(t, nil)
	for called, want := range map[string]fault.Kind{
		Host: fault.Invalid, "": fault.Invalid, "UPPER CASE": fault.Invalid, "../../etc": fault.Invalid, digestPrefix + strings.Repeat("0", 64): fault.Invalid,
		"a@sha256:short": fault.Invalid, "a/b:c:d": fault.Invalid, strings.Repeat("x", 10_000): fault.Invalid, "a\x00b": fault.Invalid, "127.0.0.1:1/a": fault.Unavailable,
	} {
		if _, err := s.Pull(t.Context(), Request{Reference: called}); fault.KindOf(err) != want {
			t.Errorf("%.40q: got %v, want one of kind %v", called, err, want)
		} else if fault.Of(err).Hint == "" {
			t.Errorf("%.40q: fault.Of(err).Hint: got none, want one", called)
		}
	}
}

func TestNamesOfTheConfiguration(t *testing.T) {
	table := map[string]string{"data": "registry.test/data@sha256:" + strings.Repeat("1", 64), "microsandbox/node": "node:22", "me": "me"}
	for _, test := range []struct {
		names        Names
		called, want string
	}{
		{Names{}, "", Host},
		{Names{}, "python:3.12", "python:3.12"},
		{Names{}, "microsandbox/python", Host},
		{Names{Default: "tools"}, "", "tools"},
		{Names{Default: "tools"}, "microsandbox/node", "tools"},
		{Names{Default: "data", Table: table}, "", table["data"]},
		{Names{Default: "data", Table: table}, "microsandbox/python", table["data"]},
		{Names{Default: "data", Table: table}, "microsandbox/node", "node:22"},
		{Names{Table: table}, "me", "me"},
		{Names{Default: "tools"}, Host, Host},
	} {
		if got := test.names.Resolve(test.called); got != test.want {
			t.Errorf("%+v: %q is %q, want %q", test.names, test.called, got, test.want)
		}
	}
	for full, want := range map[string]string{
		name.DefaultRegistry + "/library/python:3": "python:3", name.DefaultRegistry + "/a/b:latest": "a/b:latest", "registry.test/library/x:1": "registry.test/library/x:1",
	} {
		if got := familiar(full); got != want {
			t.Errorf("%s is called %s", full, got)
		}
	}
}
