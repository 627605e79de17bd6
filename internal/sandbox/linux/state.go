//go:build linux && (amd64 || arm64)

package linux

import (
	"context"
	"debug/elf"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"path/filepath"
	"runtime"
	"strings"
	"sync"

	"paddock/internal/fault"
)

// stateVersion is that of what is written beside a box's state.
const stateVersion = 1

// origin is all that a saved box depends on. Where one of these is another now, the
// box is not tried: its memory would not fit.
type origin struct {
	Version  int    `json:"version"`
	Build    string `json:"build"` // of this program, gVisor included
	System   string `json:"system"`
	Platform string `json:"platform"`
	Image    string `json:"image"`
	User     string `json:"user,omitempty"`
	Folders  string `json:"folders"` // where they are in the box, and how
	Memory   int64  `json:"memory"`
	Overlay  int64  `json:"overlay"`
}

// origin is that of a box of this plan.
func (b *Backend) origin(p *plan) (origin, error) {
	build, err := buildID()
	if err != nil {
		return origin{}, fault.New(fault.Unsupported, "this paddock does not know its own build, so that machines cannot be saved").WithCause(err)
	}
	if p.agent == "" {
		return origin{}, fault.New(fault.Unsupported, "machines cannot be saved: paddock's own file was replaced since it was started, or others may not run it").
			WithHint("start paddock again, from a file that everybody may read and run")
	}
	var folders []string
	for _, f := range p.folders {
		folders = append(folders, fmt.Sprintf("%s %t", f.guest, f.readOnly))
	}
	return origin{
		Version: stateVersion, Build: build, System: runtime.GOARCH, Platform: b.launcher.platform, Image: p.root.name, User: p.user,
		Folders: strings.Join(folders, "\n"), Memory: p.memory, Overlay: p.overlayBytes,
	}, nil
}

// accepts tells why a box with this state cannot be gone on with as o; nil: it can.
func (o origin) accepts(state []byte) error {
	var was origin
	if err := json.Unmarshal(state, &was); err != nil {
		return unusable("it is damaged", err)
	}
	for _, c := range []struct {
		same bool
		what string
	}{
		{was.Version == o.Version && was.Build == o.Build, "another build of paddock made it"},
		{was.System == o.System && was.Platform == o.Platform, "it is of another kind of machine"},
		{was.Image == o.Image, "the image is another one now"},
		{was.User == o.User, "its user is another one now"},
		{was.Folders == o.Folders, "its folders are others now"},
		{was.Memory == o.Memory && was.Overlay == o.Overlay, "its limits are others now"},
	} {
		if !c.same {
			return unusable(c.what, nil)
		}
	}
	return nil
}

// SavedImage gives the id of the image that a machine with this state needs; empty: it
// needs none but this host's programs, or is damaged.
func SavedImage(state []byte) string {
	var was origin
	if err := json.Unmarshal(state, &was); err != nil || was.Image == HostImage {
		return ""
	}
	return was.Image
}

// planOf is the plan of a machine's box. One that was saved goes on in the image that it
// had, also where its name has another one by now.
func (b *Backend) planOf(ctx context.Context, m *machine) (*plan, error) {
	spec := m.spec
	if m.state != nil {
		if had := SavedImage(m.state.State); had != "" {
			spec.Image = had
		}
	}
	p, err := b.plan(ctx, spec)
	if err != nil && spec.Image != m.spec.Image {
		return b.plan(ctx, m.spec) // it is not there any more
	}
	return p, err
}

// unusable is why a saved box cannot be gone on with.
func unusable(why string, cause error) error {
	return fault.New(fault.Unsupported, "%s", why).WithHint("a fresh machine can be started: the files are there, variables are not").WithCause(cause)
}

// buildID is what the linker wrote into this program: a hash of all that is in it.
var buildID = sync.OnceValues(func() (string, error) {
	file, err := filepath.EvalSymlinks(executable)
	if err != nil {
		file = executable
	}
	f, err := elf.Open(file)
	if err != nil {
		return "", err
	}
	defer f.Close()
	for _, name := range []string{".note.go.buildid", ".note.gnu.build-id"} {
		if s := f.Section(name); s != nil && s.Size < 4<<10 {
			data, err := s.Data()
			return hex.EncodeToString(data), err
		}
	}
	return "", fmt.Errorf("%s has no build id", file)
})
