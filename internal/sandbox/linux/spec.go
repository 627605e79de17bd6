//go:build linux && (amd64 || arm64)

package linux

import (
	"cmp"
	"encoding/json"
	"fmt"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"

	specs "github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"paddock/internal/sandbox/linux/agent"
	"paddock/internal/sandbox/linux/gvisorfix"
	"paddock/internal/sandbox/linux/proxyenv"
)

// plan is what a box is to be.
type plan struct {
	id   string
	root rootfs
	// user is sandbox.Spec's.
	user string
	// folders of the host, in the order in which they are mounted.
	folders []folder
	// overlayBytes bounds what may be written upon the root; 0: it is read-only, and
	// so is everything else that is not a folder.
	overlayBytes int64
	// memory is what the box is told to have, in bytes.
	memory int64
	cpus   int
	// init is the command line of its first program.
	init []string
	// agent is where the host has the first program, which the box then has as a file
	// in agentFolder; empty: the sentry is given it opened, and cannot save the box.
	agent string
	// state is what the box begins with instead; nil: it starts its first program.
	state *os.File
}

// ahead is how many huge pages a process of the box may be given before it has filled
// them.
func (p *plan) ahead() int {
	if !gvisorfix.HugePagesWork() {
		return 0
	}
	return gvisorfix.HugePagesAhead(cmp.Or(p.memory, defaultMemory))
}

// Where a box has its first program, and what Node loads: in a folder of gVisor's own
// /dev, which every box has.
const (
	agentFolder = "/dev/paddock"
	agentExport = "agent"
)

// folder is one of the host's in a box.
type folder struct {
	guest, host string
	readOnly    bool
	noLinks     bool // there may be none on the way to host
	// told says that the server tells of each change from outside; alias is where else the
	// box has the folder, in front of this one; empty: nowhere.
	told  bool
	alias string
}

// rootfs is what a box's root shows of the host.
type rootfs struct {
	// steps make it in the folder called rootPath of the gofer.
	steps []step
	name  string // of the image, another one for other files
	env   []string
	tree  string // the image's folder, another one where its name stands for another by now; empty: the host's
	done  func() // nil: nothing to do when it is used no more
}

func (r *rootfs) release() {
	if r.done != nil {
		r.done()
	}
}

// rootPath is where a gofer has the root, and folderPath a folder of the host.
const rootPath = "root"

func folderPath(n int) string { return "folder" + strconv.Itoa(n) }

// hostName is what a program is told of the machine's name.
const hostName = "paddock"

// oci describes the box for gVisor.
func (p *plan) oci() *specs.Spec {
	s := &specs.Spec{
		Version:  specs.Version,
		Hostname: hostName,
		Root:     &specs.Root{Path: "/", Readonly: p.overlayBytes == 0},
		Process: &specs.Process{
			Args: p.init, Cwd: "/", Env: []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"},
			User:            specs.User{UID: guestID, GID: guestID},
			Capabilities:    &specs.LinuxCapabilities{},
			NoNewPrivileges: true,
			Rlimits:         []specs.POSIXRlimit{{Type: "RLIMIT_CORE"}},
		},
		Linux: &specs.Linux{},
	}
	s.Mounts = append(s.Mounts, specs.Mount{Type: "tmpfs", Destination: "/dev/shm", Options: []string{
		"nosuid", "nodev", "noexec", "mode=1777", "size=" + strconv.FormatInt(p.memory/2, 10),
	}})
	s.Mounts = append(s.Mounts, specs.Mount{Type: "bind", Source: agentFolder, Destination: agentFolder, Options: []string{"nosuid", "nodev", "ro"}})
	for _, f := range p.folders {
		m := specs.Mount{Type: "bind", Source: f.host, Destination: f.guest, Options: []string{"nosuid", "nodev"}}
		if f.readOnly {
			m.Options = append(m.Options, "ro")
		}
		if f.told {
			m.Options = append(m.Options, "noatime") // or each read is a change that is noted
		}
		s.Mounts = append(s.Mounts, m)
	}
	if p.user != "" && p.overlayBytes > 0 {
		s.Mounts = append(s.Mounts, specs.Mount{Type: "tmpfs", Destination: "/root", Options: []string{
			"nosuid", "nodev", "mode=1777", "size=" + strconv.FormatInt(p.overlayBytes, 10),
		}})
	}
	if !slices.ContainsFunc(p.folders, func(f folder) bool { return path.Clean(f.guest) == "/tmp" }) {
		options := []string{"nosuid", "nodev", "mode=1777"}
		if p.overlayBytes == 0 {
			options = append(options, "ro")
		} else {
			options = append(options, "size="+strconv.FormatInt(p.overlayBytes, 10))
		}
		s.Mounts = append(s.Mounts, specs.Mount{Type: "tmpfs", Destination: "/tmp", Options: options})
	}
	return s
}

// exports are what the gofer serves, in gVisor's order: the root, then the folders.
func (p *plan) exports() []export {
	all := []export{{Path: "/" + rootPath, ReadOnly: true}, {Path: "/" + agentExport, ReadOnly: true}}
	for n, f := range p.folders {
		all = append(all, export{Path: "/" + folderPath(n), ReadOnly: f.readOnly})
	}
	return all
}

// steps make what the gofer serves.
func (p *plan) steps() []step {
	all := append(slices.Clone(p.root.steps), step{Path: agentExport, Dir: 0o555}, step{Path: path.Join(agentExport, path.Base(proxyenv.NodePath)), Text: proxyenv.NodeScript})
	if p.user != "" {
		all = append(all, step{Path: path.Join(agentExport, "sudo"), Text: sudo, Run: true})
	}
	if p.agent != "" {
		all = append(all, step{Path: path.Join(agentExport, agent.Role), Bind: p.agent, ReadOnly: true})
	}
	for n, f := range p.folders {
		all = append(all, step{Path: folderPath(n), Bind: f.host, ReadOnly: f.readOnly, NoLinks: f.noLinks})
	}
	return all
}

// cached are the folders that the sentry may remember.
func (p *plan) cached() (all []gvisorfix.CachedFolder) {
	for _, f := range p.folders {
		switch {
		case !f.told:
		case f.alias == "":
			all = append(all, gvisorfix.CachedFolder{Guest: f.guest})
		default:
			last := &all[len(all)-1]
			last.Aliases = append(last.Aliases, f.guest)
		}
	}
	return all
}

// mountConfs tells gVisor which of the exports get an overlay.
func (p *plan) mountConfs() string {
	root := "lisafs:none"
	if p.overlayBytes > 0 {
		root = "lisafs:anon:size=" + strconv.FormatInt(p.overlayBytes, 10)
	}
	all := append([]string{root}, slices.Repeat([]string{"lisafs:none"}, len(p.exports())-1)...)
	return strings.Join(all, ",")
}

// hand numbers files that a part gets, and gives the flags that name them.
type hand struct {
	files []*os.File
	flags []string
	own   []*os.File // to be closed here when the part has them
}

func (h *hand) close() {
	for _, f := range h.own {
		f.Close()
	}
}

func (h *hand) give(flag string, files ...*os.File) {
	for _, f := range files {
		h.flags = append(h.flags, fmt.Sprintf("--%s=%d", flag, firstFile+len(h.files)))
		h.files = append(h.files, f)
	}
}

// pass gives a file to the box's first program, as its descriptor guest.
func (h *hand) pass(f *os.File, guest int) {
	h.flags = append(h.flags, fmt.Sprintf("--pass-fd=%d:%d", firstFile+len(h.files), guest))
	h.files = append(h.files, f)
}

// settings are gVisor's for every box, but for the platform: no network but
// loopback, nothing of the host's cgroups and settings is touched, and no
// descriptors of the host's sockets and FIFOs.
func settings(platform string, debug bool) []string {
	if platform == gvisorfix.Beneath {
		platform = gvisorfix.Platform
	}
	all := []string{
		"--root=/", "--platform=" + platform, "--network=none", "--ignore-cgroups", "--host-settings=ignore",
		"--directfs", "--overlay2=none", "--file-access-mounts=shared", "--gvisor-marker-file=false",
	}
	if debug {
		all = append(all, "--debug", "--alsologtostderr")
	}
	return all
}

// memoryFile is a nameless file with v as JSON.
func memoryFile(name string, v any) (*os.File, error) {
	body, err := json.Marshal(v)
	if err != nil {
		return nil, err
	}
	fd, err := unix.MemfdCreate(name, unix.MFD_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("making a file in memory: %w", err)
	}
	f := os.NewFile(uintptr(fd), name)
	if _, err := f.WriteAt(body, 0); err != nil {
		f.Close()
		return nil, fmt.Errorf("writing a file in memory: %w", err)
	}
	return f, nil
}
