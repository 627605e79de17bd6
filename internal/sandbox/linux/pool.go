//go:build linux && (amd64 || arm64)

package linux

import (
	"context"
	"fmt"
	"slices"

	"paddock/internal/fault"
	"paddock/internal/sandbox"
)

var _ sandbox.Adopter = (*Backend)(nil)

// Adopt gives a machine to an owner. What is mounted in it follows a folder that is
// renamed, so nothing of it changes but what it is called, and where its folders
// are counted.
func (b *Backend) Adopt(ctx context.Context, in sandbox.Instance, spec sandbox.Spec) error {
	one, ok := in.(*instance)
	if !ok || one.backend != b {
		return fault.New(fault.Conflict, "the interpreter is another backend's")
	}
	m := one.machine
	root, err := b.root(ctx, spec.Image, spec.User)
	if err != nil {
		return fmt.Errorf("looking at the image: %w", err)
	}
	root.release() // the machine holds its own
	b.mu.Lock()
	defer b.mu.Unlock()
	key := spec.Owner + "\x00" + spec.Box
	switch there := b.machines[key]; {
	case b.closed:
		return fault.New(fault.Unavailable, "paddock is shutting down")
	case !m.running():
		return fault.New(fault.Unavailable, "the machine has ended").WithHint("start another one")
	case there != nil:
		return fault.New(fault.Conflict, "there is a machine %q already", spec.Box)
	case m.users != 1 || root.tree != m.box.plan.root.tree || !m.same(rehoused(spec, m.spec.Mounts)):
		return fault.New(fault.Conflict, "the machine is not what is asked for").WithHint("start another one")
	}
	if b.machines[m.key] == m {
		delete(b.machines, m.key)
	}
	m.key, m.spec.Owner, m.spec.Mounts, m.spec.Proxy = key, spec.Owner, slices.Clone(spec.Mounts), spec.Proxy
	m.client.Accept(spec.Proxy)
	m.client.Translate(b.translator(spec.Owner))
	b.machines[key] = m
	m.watch.follow(m.spec.Mounts)
	m.box.wake()
	return nil
}

// Suspend stops the sentry, whatever it does: gVisor looks at what its programs need
// every 400 µs, also when all of them wait, which takes a hundredth of a processor and
// more. It ends with the server all the same.
func (b *Backend) Suspend(in sandbox.Instance) error {
	one, ok := in.(*instance)
	if !ok || one.backend != b {
		return fault.New(fault.Conflict, "the interpreter is another backend's")
	}
	return one.machine.box.suspend()
}

// rehoused is spec with the folders of these mounts.
func rehoused(spec sandbox.Spec, mounts []sandbox.Mount) sandbox.Spec {
	spec.Mounts = slices.Clone(spec.Mounts)
	for n := range spec.Mounts {
		if n < len(mounts) {
			spec.Mounts[n].Host = mounts[n].Host
		}
	}
	return spec
}

// follow tells the watch where the machine's folders are now. What was counted of
// them meanwhile, at places where they no longer were, is counted again.
func (w *watch) follow(mounts []sandbox.Mount) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.hosts, w.begins = map[string]string{}, true
	for _, m := range mounts {
		w.hosts[m.Guest] = m.Host
	}
}

// hostOf is where a folder is now.
func (w *watch) hostOf(m sandbox.Mount) string {
	w.mu.Lock()
	defer w.mu.Unlock()
	if host, moved := w.hosts[m.Guest]; moved {
		return host
	}
	return m.Host
}
