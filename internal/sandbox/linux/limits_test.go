//go:build linux && (amd64 || arm64)

package linux

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"paddock/internal/sandbox/sandboxtest"
)

func TestABoxIsInACgroupWithItsBounds(t *testing.T) {
	b := newBackend(t)
	sandboxtest.Require(t, "cgroup", b.cgroups.dirs["memory"] != "" && b.cgroups.dirs["pids"] != "", "no cgroup can be made here")
	spec := specFor(t, b)
	spec.Limits.MemoryBytes, spec.CPUs = 100<<20, 0.5
	in := start(t, b, spec)
	box := in.machine.box
	for controller, want := range map[string]map[string]string{
		"memory": {"memory.limit_in_bytes": "306184192", "memory.max": "306184192"},
		"pids":   {"pids.max": "2304"},
		"cpu":    {"cpu.cfs_quota_us": "50000", "cpu.max": "50000 100000"},
	} {
		if b.cgroups.dirs[controller] == "" {
			continue
		}
		dir := filepath.Join(b.cgroups.dirs[controller], cgroupPrefix+box.plan.id)
		found := 0
		for name, value := range want {
			if text, err := os.ReadFile(filepath.Join(dir, name)); err == nil {
				found++
				if strings.TrimSpace(string(text)) != value {
					t.Errorf("%s is %s, want %s", name, text, value)
				}
			}
		}
		if found == 0 {
			t.Errorf("%s has no bound", controller)
		}
		inside := strings.Fields(readText(dir, "cgroup.procs"))
		for _, p := range []*part{box.sentry, box.gofer} {
			if pid := strconv.Itoa(p.cmd.Process.Pid); !strings.Contains(" "+strings.Join(inside, " ")+" ", " "+pid+" ") {
				t.Errorf("the %s, %s, is not among %v", p.role, pid, inside)
			}
		}
		// The programs of the box are processes of the host that the sentry started.
		if n := livingOf(box.sentry.cmd.Process.Pid, box.gofer.cmd.Process.Pid); n < 3 || len(inside) < n {
			t.Errorf("%d of %d processes are in it", len(inside), n)
		}
	}
}

// A box that gets around every other bound meets the kernel's.
func TestTheKernelEndsABoxThatTakesTooMuchMemory(t *testing.T) {
	b := newBackend(t)
	sandboxtest.Require(t, "cgroup", b.cgroups.dirs["memory"] != "", "no cgroup can be made here")
	p := newPlan(t, "/bin/sh", "-c", "for i in $(seq 100); do (x=$(head -c 4000000 /dev/zero | tr '\\000' x); sleep 1000) & done; wait")
	cg, err := b.cgroups.create(b.home.name+"-much", bounds{memory: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	box, err := newLauncher(t).boot(t.Context(), p, cg)
	if err != nil {
		t.Fatal(err)
	}
	<-box.done
}

// The files of version 2, which this machine may not have, in a folder.
func TestVersion2IsHandedOn(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{"cgroup.controllers": "cpu memory pids io\n", "cgroup.subtree_control": "pids\n"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := handOn(dir, strings.Fields(readText(dir, "cgroup.controllers"))); err != nil {
		t.Error(err)
	}
	if got := readText(dir, "cgroup.subtree_control"); got != "+memory +cpu" {
		t.Errorf("it says %q", got)
	}
	c := &cgroups{v2: true}
	for controller, files := range map[string]map[string]string{
		"memory": {"memory.max": "201326593", "memory.oom.group": "1", "memory.swap.max": "0"},
		"pids":   {"pids.max": "280"},
		"cpu":    {"cpu.max": "150000 100000"},
	} {
		group := t.TempDir()
		for name := range files {
			if err := os.WriteFile(filepath.Join(group, name), nil, 0o644); err != nil {
				t.Fatal(err)
			}
		}
		if err := c.set(controller, group, bounds{memory: 1, processes: 3, cpus: 1.5}); err != nil {
			t.Error(err)
		}
		for name, want := range files {
			if got := readText(group, name); got != want {
				t.Errorf("%s is %q, want %q", name, got, want)
			}
		}
	}
}

func TestWithoutCgroupsEverythingGoesOn(t *testing.T) {
	var none cgroups
	g, err := none.create("x", bounds{memory: 1})
	if g != nil || err != nil {
		t.Error(g, err)
	}
	if err := g.add(1); err != nil {
		t.Error(err)
	}
	g.remove()
	for _, p := range none.protections() {
		if p.Active || p.Detail == "" {
			t.Errorf("%+v", p)
		}
	}
}
