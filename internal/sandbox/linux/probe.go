//go:build linux && (amd64 || arm64)

package linux

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"paddock/internal/fault"
	"paddock/internal/sandbox"
	"paddock/internal/sandbox/linux/gvisorfix"
)

// Probe tells what works here. The first time it boots a box, as long as ctx
// allows; what it found then is kept for a while, in the cache folder also for the
// processes that come after, unless ctx ended: what works for a day, what does not
// for seconds.
func (b *Backend) Probe(ctx context.Context) sandbox.Probe { return b.probeOnce(ctx, true) }

// ProbeAnew is Probe that believes nothing that was found before.
func (b *Backend) ProbeAnew(ctx context.Context) sandbox.Probe { return b.probeOnce(ctx, false) }

func (b *Backend) probeOnce(ctx context.Context, believe bool) sandbox.Probe {
	b.probing.Lock()
	defer b.probing.Unlock()
	if b.probed == nil || !believe || !b.probed.count() {
		f, path, known := b.remembered(ctx)
		if !known || !believe {
			began := time.Now()
			f = findings{Probe: b.probe(ctx)}
			if ctx.Err() != nil {
				return f.Probe
			}
			f.At, f.Took = time.Now(), time.Since(began)
			b.remember(path, f)
		}
		b.probed = &f
	}
	p := b.probed.Probe
	p.Runtimes, p.Protections = slices.Clone(p.Runtimes), slices.Clone(p.Protections)
	return p
}

func (b *Backend) probe(ctx context.Context) sandbox.Probe {
	p := sandbox.Probe{Engine: Engine}
	if withCgo {
		p.Reason, p.Hint = "this paddock was built with cgo, and Linux machines do not boot with that", "build it with make, or with CGO_ENABLED=0"
		return p
	}
	m, err := b.machine(ctx, sandbox.Spec{Owner: "probe"})
	var known *fault.Error // such as an image that is not there
	if errors.As(err, &known) && known.Kind != fault.Unavailable {
		p.Reason, p.Hint = known.Message, known.Hint
		return p
	}
	if err != nil {
		p.Reason, p.Hint = "a Linux machine does not boot here: "+rootCause(err), hint(err)
		return p
	}
	defer b.leave(m)
	if p.Runtimes, err = m.client.Runtimes(ctx); err != nil {
		p.Reason, p.Hint = "what is in the image cannot be found out: "+rootCause(err), hint(err)
		return p
	}
	p.Protections = append(b.walls(), b.cgroups.protections()...)
	p.Protections = append(p.Protections, m.ready.Protections...)
	if p.Available = len(p.Runtimes) > 0; !p.Available {
		p.Reason = fmt.Sprintf("the image %q has no Python, Node.js or bash", b.config.Image)
		p.Hint = "name another image, or install one of them"
	}
	return p
}

// walls are what stands around a sentry besides its being one.
func (b *Backend) walls() []sandbox.Protection {
	all := []sandbox.Protection{
		{Name: "gvisor", Active: true, Detail: "programs run on a kernel of their own, in Go (platform " + b.config.Platform + ")"},
		{Name: "namespaces", Active: true, Detail: "the sentry and the gofer have users, mounts, processes, network and IPC of their own"},
		{Name: "seccomp", Active: true, Detail: "gVisor's filter of system calls, in both"},
	}
	user := sandbox.Protection{Name: "user", Active: true, Detail: fmt.Sprintf("on the host a box is user %d and group %d instead of root", b.config.UID, b.config.GID)}
	if os.Geteuid() != 0 {
		user.Active, user.Detail = false, "on the host a box has paddock's own user, and sees none of its files but the mounts; it becomes another one when paddock runs as root"
	}
	return append(all, user, hugePages(), b.fileCache())
}

// fileCache is no protection either, but what many small files cost depends on it.
func (b *Backend) fileCache() sandbox.Protection {
	p := sandbox.Protection{Name: "file cache", Active: true, Detail: "the sentry remembers what is in a session's folders, and the server tells it of changes"}
	if err := gvisorfix.FoldersCanBeCached(); err != nil {
		p.Active, p.Detail = false, "the sentry asks the host for each part of each path: "+err.Error()
	} else if b.config.Platform != gvisorfix.Beneath {
		p.Active, p.Detail = false, "the sentry asks the host for each part of each path: it remembers folders on the platform "+gvisorfix.Beneath+" alone"
	}
	return p
}

// hugePages are no protection, but what memory costs depends on them.
func hugePages() sandbox.Protection {
	p := sandbox.Protection{Name: "huge pages", Active: gvisorfix.HugePagesWork(), Detail: "the kernel makes pages of 2 MiB of memory that programs fill"}
	if !p.Active {
		p.Detail = "the kernel makes none by itself of memory that programs fill, so that it costs them up to four times as much: it is older than 6.1, or " +
			gvisorfix.ShmemSetting + " is \"deny\"; where that is \"advise\", and " + gvisorfix.DefragSetting + " is \"defer\", gVisor asks for them"
	}
	return p
}

// rootCause is the innermost error's text: what the operator has to know.
func rootCause(err error) string {
	for {
		next := errors.Unwrap(err)
		var f *fault.Error
		if next == nil || errors.Is(err, io.EOF) && !errors.As(err, &f) { // the end of a stream says nothing by itself
			return strings.TrimSpace(err.Error())
		}
		err = next
	}
}

// A setting of the host that can keep boxes from booting, and what to do about it.
type obstacle struct {
	path, value string // the file says this
	hint        string
}

var obstacles = []obstacle{
	{"/proc/sys/kernel/unprivileged_userns_clone", "0", "allow user namespaces: sysctl kernel.unprivileged_userns_clone=1"},
	{"/proc/sys/user/max_user_namespaces", "0", "allow user namespaces: sysctl user.max_user_namespaces=10000"},
	{"/proc/sys/kernel/apparmor_restrict_unprivileged_userns", "1", "allow paddock to use user namespaces with an AppArmor profile that has \"userns,\", or: sysctl kernel.apparmor_restrict_unprivileged_userns=0"},
	{"/proc/sys/kernel/yama/ptrace_scope", "3", "allow processes to trace their own children: kernel.yama.ptrace_scope below 3"},
}

// hint is one thing that can be done so that boxes boot.
func hint(err error) string {
	return hintFor(err, os.Geteuid() == 0, func(path string) string {
		text, _ := os.ReadFile(path)
		return strings.TrimSpace(string(text))
	})
}

func hintFor(err error, root bool, read func(path string) string) string {
	text := err.Error() + " " + rootCause(err)
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return "the machine may be overloaded: try again"
	case errors.Is(err, io.EOF):
		return "gVisor's kernel ended as it began: in a container, let it use ptrace and seccomp"
	case errors.Is(err, unix.ENOMEM) || strings.Contains(text, "cannot allocate memory"):
		return "there is not enough memory: end something, or give the machine more"
	case strings.Contains(text, "older than 5.12"):
		return "a kernel of version 5.12 or newer is needed"
	case errors.Is(err, unix.ENOSPC) && read("/proc/sys/user/max_user_namespaces") != "0":
		return "too many namespaces are in use: raise user.max_user_namespaces, user.max_mnt_namespaces and the like"
	}
	for _, o := range obstacles {
		if read(o.path) == o.value && (!root || !strings.Contains(o.path, "unpriv")) {
			return o.hint
		}
	}
	if errors.Is(err, unix.EPERM) || strings.Contains(text, "operation not permitted") || strings.Contains(text, "permission denied") {
		return "in a container, let it make user namespaces and mounts: a seccomp profile that allows clone, unshare, mount, mount_setattr and pivot_root, and no masked /proc"
	}
	return "the isolation wasm works without any of this"
}
