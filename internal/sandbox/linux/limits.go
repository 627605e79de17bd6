//go:build linux && (amd64 || arm64)

package linux

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"paddock/internal/sandbox"
)

// bounds are what a box may have. Zeros: no bound.
type bounds struct {
	memory    int64 // of its programs, in bytes
	processes int
	cpus      float64
}

// Threads of the host that a box needs beside, and for each process in it.
const (
	sentryTasks  = 256
	processTasks = 8
)

// controllers are the kernel's that a box is bounded by.
var controllers = []string{"memory", "pids", "cpu"}

// cgroups makes cgroups for boxes: of version 2, or of version 1 where a
// controller is there. Its zero value makes none.
type cgroups struct {
	prefix string // of the name of each
	// dirs are the folders in which they are made, by controller; with version 2
	// it is one and the same.
	dirs map[string]string
	v2   bool
	why  map[string]string // why a controller cannot be used
}

// cgroupPrefix begins the name of every box's.
const cgroupPrefix = "paddock-"

// findCgroups finds out where this process may make cgroups; name becomes a part
// of theirs.
func findCgroups(name string) *cgroups {
	c := &cgroups{prefix: cgroupPrefix + name + "-", dirs: map[string]string{}, why: map[string]string{}}
	own, mounts, err := cgroupPaths()
	if err != nil {
		for _, controller := range controllers {
			c.why[controller] = err.Error()
		}
		return c
	}
	if dir := mounts[""]; dir != "" {
		c.findV2(filepath.Join(dir, own[""]))
	}
	for _, controller := range controllers {
		if c.dirs[controller] != "" || mounts[controller] == "" {
			continue
		}
		// A path that leads out of what is mounted is another namespace's.
		if path := own[controller]; path != "" && !strings.HasPrefix(path, "/..") {
			c.try(controller, filepath.Join(mounts[controller], path))
		}
	}
	return c
}

// cgroupPaths tells which cgroup of each version 1 controller this process is in,
// and where its hierarchy is mounted; "" stands for version 2.
func cgroupPaths() (own, mounts map[string]string, err error) {
	own, mounts = map[string]string{}, map[string]string{}
	text, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return nil, nil, err
	}
	for line := range strings.Lines(string(text)) {
		if f := strings.SplitN(strings.TrimSpace(line), ":", 3); len(f) == 3 {
			for name := range strings.SplitSeq(f[1], ",") {
				own[name] = f[2]
			}
		}
	}
	text, err = os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return nil, nil, err
	}
	for s := bufio.NewScanner(bytes.NewReader(text)); s.Scan(); {
		// The root and the place are the fourth and the fifth field; the type is the
		// first after a dash, the options the third.
		before, after, ok := strings.Cut(s.Text(), " - ")
		place, fields := strings.Fields(before), strings.Fields(after)
		if !ok || len(place) < 5 || len(fields) < 3 || place[3] != "/" {
			continue
		}
		switch fields[0] {
		case "cgroup2":
			mounts[""] = place[4]
		case "cgroup":
			for option := range strings.SplitSeq(fields[2], ",") {
				mounts[option] = place[4]
			}
		}
	}
	return own, mounts, nil
}

// findV2 uses version 2, for the controllers that dir hands on.
func (c *cgroups) findV2(dir string) {
	has := strings.Fields(readText(dir, "cgroup.controllers"))
	if !slices.Contains(has, "memory") {
		return
	}
	c.v2 = true
	if err := handOn(dir, has); err != nil {
		for _, controller := range controllers {
			c.why[controller] = err.Error()
		}
	}
	for _, controller := range strings.Fields(readText(dir, "cgroup.subtree_control")) {
		if slices.Contains(controllers, controller) {
			c.try(controller, dir)
		}
	}
}

// serverGroup is the cgroup into which this process goes where its own one has to
// hand controllers on, for one with processes cannot.
const serverGroup = "paddock-server"

// handOn lets the cgroups in dir use the controllers that it has. The process's own
// one is left to itself, unless nobody else is in it.
func handOn(dir string, has []string) error {
	want := ""
	for _, controller := range controllers {
		if slices.Contains(has, controller) && !slices.Contains(strings.Fields(readText(dir, "cgroup.subtree_control")), controller) {
			want += " +" + controller
		}
	}
	if want == "" {
		return nil
	}
	write := func() error {
		return os.WriteFile(filepath.Join(dir, "cgroup.subtree_control"), []byte(strings.TrimSpace(want)), 0)
	}
	err := write()
	if !errors.Is(err, unix.EBUSY) {
		return err
	}
	self := strconv.Itoa(os.Getpid())
	if strings.TrimSpace(readText(dir, "cgroup.procs")) != self {
		return errors.New("the cgroup of this process is shared with others")
	}
	server := filepath.Join(dir, serverGroup)
	if err := os.Mkdir(server, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	if err := os.WriteFile(filepath.Join(server, "cgroup.procs"), []byte(self), 0); err != nil {
		return err
	}
	return write()
}

// try makes a cgroup in dir, and uses dir if that works.
func (c *cgroups) try(controller, dir string) {
	test := filepath.Join(dir, c.prefix+"try")
	err := os.Mkdir(test, 0o755)
	if err == nil {
		err = c.set(controller, test, bounds{memory: 1 << 30, processes: 1 << 10, cpus: 1})
		err = errors.Join(err, os.Remove(test))
	}
	if err != nil {
		c.why[controller] = err.Error()
		return
	}
	c.dirs[controller] = dir
}

// set writes one controller's bounds.
func (c *cgroups) set(controller, dir string, b bounds) error {
	write := func(name, text string) error { return os.WriteFile(filepath.Join(dir, name), []byte(text), 0) }
	switch {
	case controller == "memory" && b.memory > 0 && c.v2:
		_ = write("memory.swap.max", "0") // where there is no swap, there is no such file
		_ = write("memory.oom.group", "1")
		return write("memory.max", strconv.FormatInt(b.memory+agentMemory+sentryMemory, 10))
	case controller == "memory" && b.memory > 0:
		_ = write("memory.swappiness", "0")
		return write("memory.limit_in_bytes", strconv.FormatInt(b.memory+agentMemory+sentryMemory, 10))
	case controller == "pids" && b.processes > 0:
		return write("pids.max", strconv.Itoa(sentryTasks+processTasks*b.processes))
	case controller == "cpu" && b.cpus > 0 && c.v2:
		return write("cpu.max", fmt.Sprintf("%d 100000", int(b.cpus*100_000)))
	case controller == "cpu" && b.cpus > 0:
		return errors.Join(write("cpu.cfs_period_us", "100000"), write("cpu.cfs_quota_us", strconv.Itoa(int(b.cpus*100_000))))
	}
	return nil
}

func readText(dir, name string) string {
	text, _ := os.ReadFile(filepath.Join(dir, name)) // what cannot be read says nothing
	return string(text)
}

// create makes a box's cgroup with its bounds; nil where none can be made.
func (c *cgroups) create(id string, b bounds) (*cgroup, error) {
	if len(c.dirs) == 0 {
		return nil, nil
	}
	g := &cgroup{}
	for _, controller := range controllers {
		dir := c.dirs[controller]
		if dir == "" {
			continue
		}
		dir = filepath.Join(dir, cgroupPrefix+id)
		if !slices.Contains(g.dirs, dir) {
			if err := os.Mkdir(dir, 0o755); err != nil {
				g.remove()
				return nil, fmt.Errorf("making a cgroup: %w", err)
			}
			g.dirs = append(g.dirs, dir)
		}
		if err := c.set(controller, dir, b); err != nil {
			g.remove()
			return nil, fmt.Errorf("bounding %s: %w", controller, err)
		}
	}
	return g, nil
}

// forgotten is how old a cgroup is in which nothing lives and which nobody is
// about to use: between its making and its first process lie milliseconds.
const forgotten = time.Minute

// sweep removes the cgroups of servers that have died: at once of those that are
// named, and what others, with folders of their own, have forgotten. One in which
// something lives cannot be removed.
func (c *cgroups) sweep(dead []string) {
	deadline := time.Now().Add(removeTime)
	for _, dir := range c.dirs {
		all, _ := filepath.Glob(filepath.Join(dir, cgroupPrefix+"*-*"))
		for _, g := range all {
			name, _, _ := strings.Cut(strings.TrimPrefix(filepath.Base(g), cgroupPrefix), "-")
			if slices.Contains(dead, name) {
				removeGroup(g, deadline)
			} else if info, err := os.Stat(g); err == nil && time.Since(info.ModTime()) > forgotten {
				_ = os.Remove(g)
			}
		}
	}
}

// protections tells which bounds the kernel keeps.
func (c *cgroups) protections() []sandbox.Protection {
	what := map[string]string{
		"memory": "the memory of a box, its sentry included", "pids": "the threads of a box", "cpu": "a box's share of the processors",
	}
	instead := map[string]string{
		"memory": "a watch ends a box that takes more than it may", "pids": "the sentry bounds processes", "cpu": "the wall limit of each run is all there is",
	}
	version := 1
	if c.v2 {
		version = 2
	}
	var all []sandbox.Protection
	for _, controller := range controllers {
		p := sandbox.Protection{Name: controller + " cgroup", Active: c.dirs[controller] != ""}
		p.Detail = fmt.Sprintf("the kernel bounds %s (version %d)", what[controller], version)
		if !p.Active {
			why := c.why[controller]
			if why == "" {
				why = "there is no such controller"
			}
			p.Detail = fmt.Sprintf("the kernel does not bound %s: %s; %s", what[controller], why, instead[controller])
		}
		all = append(all, p)
	}
	return all
}

// cgroup is one box's; nil: it has none.
type cgroup struct {
	dirs []string
	once sync.Once
}

// add puts a process and its threads into it.
func (g *cgroup) add(pid int) error {
	if g == nil {
		return nil
	}
	for _, dir := range g.dirs {
		if err := os.WriteFile(filepath.Join(dir, "cgroup.procs"), []byte(strconv.Itoa(pid)), 0); err != nil {
			return fmt.Errorf("entering a cgroup: %w", err)
		}
	}
	return nil
}

// starved tells whether the kernel ended one of its processes for want of memory.
func (g *cgroup) starved() bool {
	if g == nil {
		return false
	}
	for _, dir := range g.dirs {
		for line := range strings.Lines(readText(dir, "memory.events") + readText(dir, "memory.oom_control")) {
			if f := strings.Fields(line); len(f) == 2 && f[0] == "oom_kill" && f[1] != "0" {
				return true
			}
		}
	}
	return false
}

// removeTime bounds how long the kernel may take to let go of a cgroup whose
// processes have ended; one that stays is removed by the next server.
const removeTime = time.Second

// remove removes it, once its processes have ended.
func (g *cgroup) remove() {
	if g == nil {
		return
	}
	g.once.Do(func() {
		deadline := time.Now().Add(removeTime)
		for _, dir := range g.dirs {
			removeGroup(dir, deadline)
		}
	})
}

// removeGroup tries until the deadline.
func removeGroup(dir string, deadline time.Time) {
	for errors.Is(os.Remove(dir), unix.EBUSY) && time.Now().Before(deadline) {
		time.Sleep(time.Millisecond)
	}
}
