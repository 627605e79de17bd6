package app

import (
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"testing"
)

func TestAServerThatWasKilledIsNotWherePreviewsAre(t *testing.T) {
	v := &previews{dir: t.TempDir(), log: slog.New(slog.DiscardHandler)}
	v.announce(func(id string) string { return "http://" + id + ".localhost:1" }, "http://localhost:1")
	if a, err := v.server(); err != nil || a.Process != os.Getpid() || a.URL != "http://*.localhost:1" {
		t.Errorf("there is %v, %v", a, err)
	}
	c := exec.Command(os.Args[0], "-test.run=^$")
	if err := c.Run(); err != nil {
		t.Fatal(err)
	}
	for _, pid := range []int{c.Process.Pid, 0, -1} {
		if err := os.WriteFile(v.announcement(), fmt.Appendf(nil, `{"process":%d,"url":"http://*.localhost:1"}`, pid), 0o600); err != nil {
			t.Fatal(err)
		}
		if a, err := v.server(); err == nil {
			t.Errorf("there is %v", a)
		}
	}
	v.announce(func(id string) string { return id }, "")
	v.unannounce()
	if a, err := v.server(); err == nil {
		t.Errorf("after its end there is %v", a)
	}
}
