//go:build linux && (amd64 || arm64)

package gvisorfix

import (
	pkgcontext "gvisor.dev/gvisor/pkg/context"

	"gvisor.dev/gvisor/pkg/abi/linux"
	"gvisor.dev/gvisor/pkg/hostarch"
	"gvisor.dev/gvisor/pkg/sentry/arch"
	"gvisor.dev/gvisor/pkg/sentry/platform"
)

// Platform is what the platform with cheaper memory is called on gVisor's command line;
// Beneath is the one that it stands upon.
//
// It stands between gVisor's memory manager and the platform beneath, and says nothing
// that gVisor does not: each address shows the file, the place in it and the rights that
// the memory manager asked for, from the return of MapFile to the call of Unmap.
const (
	Platform = "paddock"
	Beneath  = "systrap"
)

// RegisterPlatform makes the platform known to gVisor. It may be called once in a
// process, before gVisor looks for a platform. ahead is how many huge pages a process may
// be given before it has filled them, see HugePagesAhead; 0: there are none.
func RegisterPlatform(ahead int) error {
	beneath, err := platform.Lookup(Beneath)
	if err != nil {
		return err
	}
	platform.Register(Platform, constructor{Constructor: beneath, ahead: ahead})
	return nil
}

type constructor struct {
	platform.Constructor
	ahead int
}

// New implements platform.Constructor.
func (c constructor) New(options platform.Options) (platform.Platform, error) {
	beneath, err := c.Constructor.New(options)
	if err != nil {
		return nil, err
	}
	p := &paged{Platform: beneath, ahead: c.ahead}
	if p.ahead > 0 {
		p.window = newWindow()
	}
	return p, nil
}

// paged is the platform.
type paged struct {
	platform.Platform
	ahead  int     // see HugePagesAhead
	window *window // nil: no huge pages
}

// NewAddressSpace implements platform.Platform.
func (p *paged) NewAddressSpace() (platform.AddressSpace, error) {
	beneath, err := p.Platform.NewAddressSpace()
	if err != nil {
		return nil, err
	}
	return &space{AddressSpace: beneath, window: p.window, trust: trust{most: p.ahead}}, nil
}

// NewContext implements platform.Platform.
func (p *paged) NewContext(ctx pkgcontext.Context) platform.Context {
	return &thread{Context: p.Platform.NewContext(ctx)}
}

// thread is the context of one thread. The platform beneath knows its own address
// spaces only, so it is shown those.
type thread struct {
	platform.Context
	view view // Switch's; only the thread's own goroutine is in there
}

// view is a memory manager whose address space is the one beneath.
type view struct{ platform.MemoryManager }

func (v *view) AddressSpace() platform.AddressSpace { return beneath(v.MemoryManager.AddressSpace()) }

func beneath(as platform.AddressSpace) platform.AddressSpace { return as.(*space).AddressSpace }

// Switch implements platform.Context.
func (t *thread) Switch(ctx pkgcontext.Context, mm platform.MemoryManager, ac *arch.Context64, cpu int32) (*linux.SignalInfo, hostarch.AccessType, error) {
	cached.begin(ctx)
	t.view.MemoryManager = mm
	signal, access, err := t.Context.Switch(ctx, &t.view, ac, cpu)
	t.view.MemoryManager = nil // which may be over before the thread is
	cached.look(ctx)
	return signal, access, err
}

// PullFullState implements platform.Context.
func (t *thread) PullFullState(as platform.AddressSpace, ac *arch.Context64) error {
	return t.Context.PullFullState(beneath(as), ac)
}
