package session

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"paddock/internal/fault"
	"paddock/internal/sandbox"
)

// inspectTime bounds how long an interpreter may take to tell what it holds.
const inspectTime = 2 * time.Second

// Details tells about a session what files and interpreters know. It waits for
// no program: while one runs there are no variables, and Notice says why.
func (m *Manager) Details(ctx context.Context, owner Owner, id ID) (Details, error) {
	s, done, err := m.use(owner, id)
	if err != nil {
		return Details{}, err
	}
	defer done()
	var d Details
	if d.Info, err = s.info(); err != nil {
		return Details{}, err
	}
	files, _, err := s.tree.List(ctx, "")
	if err == nil {
		d.DiskBytes, err = s.tree.DiskBytes()
	}
	if err != nil {
		return Details{}, fmt.Errorf("looking at the workspace: %w", err)
	}
	for _, f := range files {
		d.Files = append(d.Files, File{Path: f.Path, Size: f.Size, Modified: f.Modified})
	}
	s.interpreters.inspectProcesses(ctx, &d)
	if t := s.turns.try(ctx); t != nil {
		defer s.turns.leave(t)
		s.interpreters.inspect(t.ctx, &d)
	} else {
		d.Notice = "The session is busy: its variables, imports and memory can be seen when what runs has ended."
	}
	return d, nil
}

// inspect asks every live interpreter what it holds; of the others the last
// checkpoint tells. The notice names those that cannot say.
func (i *interpreters) inspect(ctx context.Context, d *Details) {
	s := i.s
	ctx, cancel := context.WithTimeout(ctx, inspectTime)
	defer cancel()
	all := i.list()
	var silent, ended []string
	for _, runtime := range slices.Sorted(maps.Keys(all)) {
		found, err := guard("inspecting", func() (sandbox.Inspection, error) { return all[runtime].Inspect(ctx) })
		if hasEnded(all[runtime]) {
			ended = append(ended, runtime)
			continue
		}
		if err != nil {
			s.manager.log.Warn("an interpreter cannot be inspected", "session", s.id, "runtime", runtime, "cause", fault.CauseOf(err))
			silent = append(silent, runtime)
			continue
		}
		d.Variables = append(d.Variables, found.Variables...)
		d.Imports = append(d.Imports, found.Imports...)
		d.Memory += found.Memory
	}
	ended = s.checkpoints.recall(d, all, ended)
	var notices []string
	if len(ended) > 0 {
		notices = append(notices, fmt.Sprintf("An interpreter (%s) has ended unexpectedly: its variables and imports are gone.", enumerate(ended)))
	}
	if len(silent) > 0 {
		notices = append(notices, fmt.Sprintf("An interpreter (%s) cannot be inspected now: its variables, imports and memory are missing here.", enumerate(silent)))
	}
	d.Notice = strings.Join(notices, " ")
}

// recall adds what the last checkpoint knows of interpreters that do not live,
// and gives those of ended of which it knows nothing.
func (c *checkpoints) recall(d *Details, live map[string]sandbox.Instance, ended []string) (unknown []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	held := c.repo.Head().Interpreters
	if m := c.repo.Head().Machine; m != nil && len(live) == len(ended) {
		held = m.Interpreters
	}
	for runtime, in := range held {
		if _, there := live[runtime]; there && !slices.Contains(ended, runtime) {
			continue
		}
		if c.dirty[runtime] {
			continue
		}
		ended = slices.DeleteFunc(ended, func(other string) bool { return other == runtime })
		for _, v := range in.Variables {
			d.Variables = append(d.Variables, sandbox.Variable{Name: v.Name, Type: v.Type, Preview: v.Preview})
		}
		d.Imports = append(d.Imports, in.Imports...)
	}
	return ended
}
