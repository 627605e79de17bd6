package agent

import (
	"bytes"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"paddock/internal/sandbox/wire"
)

// hold tells the server that nothing is under way from here, sends nothing, and
// waits for the word to go on. Meanwhile the box may be saved: then what is read
// next comes from another server, or later, and says so.
func (a *agent) hold(number uint32) error {
	return a.conn.Alone(func(write func(wire.Kind, uint32, any) error) error {
		programs := a.programs()
		if err := write(wire.KindHeld, number, wire.StatusBody{}); err != nil {
			return errHungUp
		}
		f, err := a.conn.Read()
		if err != nil {
			return errHungUp
		}
		switch f.Kind {
		case wire.KindGoOn:
			return nil
		case wire.KindRestored:
			return a.restored(f, programs, write)
		}
		return fmt.Errorf("a frame of kind %d came while nothing was to be sent", f.Kind)
	})
}

// restored tells the server of now what is still here. Nothing of it works in which
// a program's file is another one now: then it is said, and the box is ended.
func (a *agent) restored(f wire.Frame, programs map[string]mark, write func(wire.Kind, uint32, any) error) error {
	var body wire.RestoredBody
	if err := json.Unmarshal(f.Body, &body); err != nil {
		return fmt.Errorf("reading about the restoring: %w", err)
	}
	a.streams.Cut(errHungUp) // the server of then had their other ends
	a.loop.CutTranslations()
	answer := wire.SurvivedBody{Version: wire.Version}
	if body.Version != wire.Version {
		answer.Error = fmt.Sprintf("the server speaks version %d of the protocol", body.Version)
	}
	for _, path := range slices.Sorted(maps.Keys(programs)) {
		if now, err := markOf(path); err != nil || now != programs[path] {
			answer.Error = fmt.Sprintf("%s was changed since", path)
		}
	}
	if err := a.relisten(body.Listen); err != nil {
		answer.Error = err.Error()
	}
	switch {
	case answer.Error != "":
	case body.Reseed:
		a.awaken()
	default:
		a.settle()
	}
	for _, in := range a.loop.Instances() {
		answer.Instances = append(answer.Instances, wire.Survivor{ID: in.id, Runtime: in.start.Runtime, Memory: in.start.MemoryBytes})
	}
	return write(wire.KindSurvived, 0, answer)
}

// awakenTime bounds how long an interpreter may take to get seeds of its own, which is
// the first that it does: its memory comes from the disk. What it held is lost where it
// takes longer, so it has what a new one has to start.
const awakenTime = bootTime

// awaken gives every interpreter seeds of its own. One that does not take them ends:
// what it draws would be what another one draws.
func (a *agent) awaken() {
	var work sync.WaitGroup
	for _, in := range a.loop.Instances() {
		work.Go(in.awaken)
	}
	work.Wait()
}

func (in *instance) awaken() {
	in.use.Lock()
	defer in.use.Unlock()
	k := in.kernel
	if in.closed || k == nil || k.dead() {
		return
	}
	if k.waits {
		if k.giveUp(giveUpTime, nil); k.dead() {
			return
		}
	}
	seed := make([]byte, 32)
	_, _ = rand.Read(seed) // it does not fail
	hard := make(chan struct{})
	t := time.AfterFunc(awakenTime, func() { close(hard) })
	defer t.Stop()
	text := hex.EncodeToString(seed)
	o, err := k.ask(request{Op: "awaken", Seed: text, Code: text[:7]}, hard)
	if err != nil || o.Error != nil {
		k.kill()
	}
	if o.PID != 0 && o.PID != k.child.pid {
		k.kill()
	}
}

// settleTime bounds how long Node may take to settle.
const settleTime = 2 * time.Second

// settle returns when Node has heard that its connections were cut: it would use one
// again that it has kept. One that waits for calls hears nothing, nor does one that is
// busy with what an earlier program left.
func (a *agent) settle() {
	var work sync.WaitGroup
	for _, in := range a.loop.Instances() {
		if in.language != nil && in.language.name == "javascript" {
			work.Go(in.settle)
		}
	}
	work.Wait()
}

func (in *instance) settle() {
	in.use.Lock()
	defer in.use.Unlock()
	k := in.kernel
	if in.closed || k == nil || k.dead() || k.waits {
		return
	}
	hard := make(chan struct{})
	t := time.AfterFunc(settleTime, func() { close(hard) })
	defer t.Stop()
	_, _ = k.ask(request{Op: "settle"}, hard) // the next run sees what is wrong with it
}

// mark is what tells one file from another that lies at its path.
type mark struct {
	size    int64
	changed time.Time
}

func markOf(path string) (mark, error) {
	info, err := os.Stat(path)
	if err != nil {
		return mark{}, err
	}
	if !info.Mode().IsRegular() {
		return mark{}, fs.ErrInvalid
	}
	return mark{info.Size(), info.ModTime()}, nil
}

// programs are the files that the box's processes execute, libraries as well: what
// of them was not changed in memory is not saved with it. Those in the mounts are
// the session's own, which come and go with it.
func (a *agent) programs() map[string]mark {
	all := map[string]mark{}
	paths, _ := filepath.Glob("/proc/[0-9]*/maps")
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			continue // it has ended meanwhile
		}
		for line := range bytes.Lines(text) {
			f := strings.Fields(string(line))
			if len(f) < 6 || !strings.Contains(f[1], "x") || !strings.HasPrefix(f[5], "/") || a.mounted(f[5]) {
				continue
			}
			if _, ok := all[f[5]]; ok {
				continue
			}
			if m, err := markOf(f[5]); err == nil {
				all[f[5]] = m
			}
		}
	}
	return all
}

// mounted tells whether a path is in a mount of an instance.
func (a *agent) mounted(path string) bool {
	for _, in := range a.loop.Instances() {
		if slices.ContainsFunc(in.start.Mounts, func(m wire.MountBody) bool {
			return slices.ContainsFunc(append(m.Aliases[:len(m.Aliases):len(m.Aliases)], m.Guest), func(guest string) bool { return strings.HasPrefix(path, guest+"/") })
		}) {
			return true
		}
	}
	return false
}
