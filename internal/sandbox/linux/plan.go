//go:build linux && (amd64 || arm64)

package linux

import (
	"cmp"
	"context"
	"crypto/rand"
	"fmt"
	"math"
	"os"
	"path"
	"path/filepath"
	"runtime"
	"time"

	"paddock/internal/fault"
	"paddock/internal/sandbox"
	"paddock/internal/sandbox/linux/agent"
)

// bootTime bounds how long a box may take until its first program answers: a
// tenth of a second as a rule, but the machine may be loaded.
const bootTime = 30 * time.Second

// restoreTime is the same for a box that goes on from what was saved: all of its memory
// comes from the disk first, and one that never came back in time would be lost.
const restoreTime = 4 * time.Minute

// bootsAtOnce is how many boxes boot at once; others wait for their turn, and their time
// does not run. One boot has some processor's time to spare for another, and with more
// than a few all of them take longer.
func bootsAtOnce() int { return 2 * runtime.NumCPU() }

// defaultMemory bounds a box whose Spec sets no limit, in bytes.
const defaultMemory = 1 << 30

// plan makes out what a box of a Spec is to be. Its root has to be released.
func (b *Backend) plan(ctx context.Context, spec sandbox.Spec) (*plan, error) {
	p := &plan{user: spec.User, id: b.home.name + "-" + rand.Text(), init: []string{agent.Role}, memory: spec.Limits.MemoryBytes}
	if p.memory <= 0 {
		p.memory = defaultMemory
	}
	if p.agent = agentFile(); p.agent != "" {
		p.init = []string{path.Join(agentFolder, agent.Role)}
	}
	if len(spec.Mounts) > 0 {
		p.overlayBytes = b.config.RootBytes
	}
	p.cpus = int(math.Ceil(cmp.Or(spec.CPUs, b.config.CPUs)))
	seen := map[string]bool{"/": true, "/proc": true, "/sys": true, "/dev": true}
	for n, m := range spec.Mounts {
		alias := ""
		places := append([]string{m.Guest}, m.Aliases...)
		if n == 0 && spec.User != "" {
			places = append(places, homeOf(spec.User))
		}
		for _, guest := range places {
			if !path.IsAbs(guest) || path.Clean(guest) != guest || seen[guest] {
				return nil, fault.New(fault.Invalid, "nothing can be mounted at %q", guest)
			}
			seen[guest] = true
			p.folders = append(p.folders, folder{guest: guest, host: m.Host, readOnly: m.ReadOnly, noLinks: m.NoLinks, told: m.Told && !m.ReadOnly, alias: alias})
			alias = m.Guest
		}
	}
	if spec.User != "" && !userPattern.MatchString(spec.User) {
		return nil, fault.New(fault.Invalid, "a machine's user cannot be called %q", spec.User)
	}
	var err error
	p.root, err = b.root(ctx, spec.Image, spec.User)
	return p, err
}

// agentFile is where this program's file is on the host; empty: it has been replaced
// since this process began, or whom boxes are may not run it.
func agentFile() string {
	file, err := filepath.EvalSymlinks(executable)
	if err != nil {
		return ""
	}
	there, err := os.Stat(file)
	if err != nil || there.Mode().Perm()&0o005 != 0o005 {
		return ""
	}
	if here, err := os.Stat(executable); err != nil || !os.SameFile(here, there) {
		return ""
	}
	return file
}

// root finds an image, whose user is called so.
func (b *Backend) root(ctx context.Context, name, user string) (rootfs, error) {
	if name == "" {
		name = b.config.Image
	}
	if name == HostImage {
		return hostRootfs(user)
	}
	if b.config.Images == nil {
		return rootfs{}, fault.New(fault.NotFound, "there is no image called %q", name).WithHint("the image %q is there", HostImage)
	}
	image, err := b.config.Images(ctx, name)
	if err != nil {
		return rootfs{}, fmt.Errorf("opening the image: %w", err)
	}
	if image.Host {
		return hostRootfs(user)
	}
	return imageRootfs(image, user)
}
