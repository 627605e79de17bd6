package quota_test

import (
	"maps"
	"testing"

	"paddock/internal/quota"
)

func TestMemoryIsRefusedToWhoWouldHaveTooMuch(t *testing.T) {
	var m quota.Memory
	a, b, other := quota.Holder{"alice", "s", "python"}, quota.Holder{"alice", "s", "javascript"}, quota.Holder{"bob", "t", ""}
	for _, step := range []struct {
		name      string
		of        quota.Holder
		bytes     int64
		alone, ok bool
	}{
		{"the first", a, 6, false, true},
		{"what would be too much for its owner", b, 5, true, false},
		{"what its owner may have", b, 4, false, true},
		{"what would be too much for all", other, 6, false, false},
		{"another owner's", other, 5, false, true},
		{"less than it has", a, 1, false, true},
	} {
		if alone, ok := m.Grow(step.of, step.bytes, 10, 15); alone != step.alone || ok != step.ok {
			t.Errorf("%s: alone %v, ok %v", step.name, alone, ok)
		}
	}
	if m.Total() != 15 || !maps.Equal(m.Of("alice"), map[string]int64{"s": 10}) {
		t.Errorf("all take %d, alice %v", m.Total(), m.Of("alice"))
	}
	m.Set(a, 1)
	m.Set(b, 0)
	m.Set(b, 0)
	if m.Total() != 6 || len(m.Of("alice")) != 1 {
		t.Errorf("then all take %d, alice %v", m.Total(), m.Of("alice"))
	}
	// Who was given less since may not have it back by itself.
	if _, ok := m.Grow(a, 11, 10, 15); ok {
		t.Error("it has more than its owner may")
	}
}
