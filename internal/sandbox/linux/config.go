// Package linux is the isolation on Linux hosts: gVisor, inside this same binary.
// A session's programs run in a *box*, a machine of its own that has a kernel
// written in Go (the sentry, one process), a file server (the gofer, another), and
// package agent as its first program, with which this package, the server's half,
// speaks the guest protocol.
//
// What a box is on the host: two processes with no rights, in namespaces of their
// own, that end with the server; no mounts, files or sockets with a name; a cgroup
// where one can be made.
package linux

import (
	"context"
	"log/slog"
	"os"

	"paddock/internal/sandbox"
)

// Name is the isolation's name.
const Name = "linux"

// HostImage is the name of the image that is this machine's own userland.
const HostImage = "host"

// Config sets a Backend up.
type Config struct {
	// Dir keeps what boxes need for a moment, and the overlays of their roots,
	// nameless; it is made when it is missing. It may be shared by any number of
	// processes.
	Dir string
	// CacheDir keeps what Probe found out, so that not every process boots a box for
	// it; empty: nothing does.
	CacheDir string
	// Image is what a box has where its Spec names none; empty: HostImage.
	Image string
	// Images finds an image by its name; nil: there is none but HostImage. The box
	// that uses it calls Release when it has ended.
	Images func(ctx context.Context, name string) (Image, error)
	// UID and GID are whom a box is on the host when this process runs as root;
	// zero: 65534, nobody.
	UID, GID int
	// Platform is how gVisor runs programs; empty: "systrap", which needs nothing of
	// the host. "kvm" is faster where it works; it is used only if a box boots on it.
	Platform string
	// Processes, OpenFiles and CPUs bound a box: processes in it, open files of each,
	// and processors' worth of time (a cgroup's, and how many it sees). Zeros: 256,
	// 4096, and all processors.
	Processes, OpenFiles int
	CPUs                 float64
	// RootBytes bounds what is written beside the mounts: upon the image, and in
	// /tmp where no mount is; zero: 256 MiB.
	RootBytes int64
	// Inherit is a file that every box has open for as long as it lives, so that a
	// lock on it shows that one does; nil: none.
	Inherit *os.File
	// TypeScript translates an owner's TypeScript; nil: programs in TypeScript and imports
	// of it fail, with an error that says that it is not available.
	TypeScript sandbox.Translator
	// Log takes what boxes complain about; nil: nothing is logged.
	Log *slog.Logger
}

// Image is the root of a box: a folder that is only read, and what belongs to it.
type Image struct {
	Dir     string   // not used with Host
	ID      string   // the same one is the same files; empty: Dir
	Host    bool     // the name stands for HostImage
	Env     []string // "NAME=value"
	Release func()   // nil: nothing to release
}
