package sandboxtest

import "testing"

func TestAFeatureIsRequiredWhenTheListNamesIt(t *testing.T) {
	for _, c := range []struct {
		list, feature string
		want          bool
	}{
		{"", "wasm", false}, {"wasm", "wasm", true}, {"node, wasm", "wasm", true}, {"wasm2", "wasm", false}, {"wasm,linux", "linux", true},
	} {
		if got := required(c.list, c.feature); got != c.want {
			t.Errorf("%q in %q: got %t", c.feature, c.list, got)
		}
	}
	t.Setenv(RequireEnv, "something")
	Require(t, "something", true, "it is there, so nothing happens")
}
