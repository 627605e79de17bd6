package confine

import (
	"testing"
)

func TestProbeNamesEveryWallOnceAndSaysSomethingOfEach(t *testing.T) {
	seen := map[string]int{}
	for _, w := range Probe() {
		seen[w.Name]++
		if w.Detail == "" {
			t.Errorf("%q has no detail", w.Name)
		}
	}
	for _, name := range []string{wallLimits, wallPrivileges, wallLandlock, wallUser, wallCapabilities, wallDump, wallParent, wallSeccomp} {
		if seen[name] != 1 {
			t.Errorf("%q is named %d times, want once", name, seen[name])
		}
		delete(seen, name)
	}
	for name := range seen {
		t.Errorf("%q is not a wall", name)
	}
}

func TestAPolicyNamesAWholeUserOrNone(t *testing.T) {
	for _, c := range []struct {
		name  string
		p     Policy
		valid bool
	}{
		{"nobody is named", Policy{}, true},
		{"a user and a group", Policy{UID: 1000, GID: 1000}, true},
		{"a user who would keep root's group", Policy{UID: 1000}, false},
		{"a group for root", Policy{GID: 1000}, false},
		{"a user below zero, which leaves things as they are for the kernel", Policy{UID: -1, GID: -1}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			if _, err := c.p.withDefaults(); (err == nil) != c.valid {
				t.Errorf("the error is %v, want valid %v", err, c.valid)
			}
		})
	}
}
