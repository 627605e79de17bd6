package mcpserver

import (
	"strings"
	"testing"

	"paddock/internal/pkgproxy"
	"paddock/internal/sandbox"
	"paddock/internal/session"
)

func TestAProgramThatAsksForPackagesLearnsWhatIsMissing(t *testing.T) {
	const pip = "ERROR: No matching distribution found for requests\n"
	none := (*pkgproxy.Packages)(nil).Serves
	failed := sandbox.Exit{Cause: sandbox.Exited, Code: 1}
	for _, test := range []struct {
		name   string
		res    session.Result
		served func(string) error
		want   string
	}{
		{"pip", session.Result{Isolation: "linux", Exit: failed, Stderr: pip}, none, "packages.pypi.index"},
		{"npm", session.Result{Isolation: "linux", Exit: failed, Stderr: "npm error code ENOTFOUND\nnpm error network request failed\n"}, none, "packages.npm.index"},
		{"an index that is there", session.Result{Isolation: "linux", Exit: failed, Stderr: pip}, func(string) error { return nil }, ""},
		{"a program that ended well", session.Result{Isolation: "linux", Stderr: pip}, none, ""},
		{"a program in WebAssembly", session.Result{Isolation: "wasm", Exit: failed, Stderr: pip}, none, ""},
	} {
		got := LacksIndex(test.res, test.served)
		if test.want == "" && got != "" || !strings.Contains(got, test.want) {
			t.Errorf("%s: %q, want %q in it", test.name, got, test.want)
		}
	}
}
