// Package sessionfile writes and reads exported sessions: one file that holds all
// of a session's present state, for another paddock on any system.
//
// An archive is a tar in zstd: what it says of itself ([Head]), then under their
// digests the lists of files that it names, then every other content that it or
// the lists name, then an end, without which it is not all there. So whoever
// reads one knows before each content whether it is wanted. Digests say whether
// a content is what it was.
//
// [Write] trusts what it is given; [Read] believes nothing.
package sessionfile

import (
	"errors"
	"time"

	"paddock/internal/fault"
	"paddock/internal/history"
)

// The names in an archive.
const (
	headName   = "paddock-session.json"
	endName    = "paddock-end.json"
	blobFolder = "blobs/"
)

const (
	format = 1
	// maxHead bounds what is under headName, and what of it goes into a manifest:
	// half of what package history reads.
	maxHead = 4 << 20
	// window is zstd's, in bytes: what reading an archive holds in memory.
	window = 8 << 20
)

// Head is what an archive says of the session in it.
type Head struct {
	Format     int       `json:"format"` // Write fills it in
	ExportedAt time.Time `json:"exported_at"`
	Isolation  string    `json:"isolation"`
	Settings   Settings  `json:"settings"`
	// Checkpoint is what the session is: without its owner, its record and what
	// changed. A layer is a whole state that depends on nothing.
	Checkpoint history.Manifest `json:"checkpoint"`
}

// Settings are what the session was made with: a session's own, by the same
// names.
type Settings struct {
	Language    string        `json:"language,omitempty"`
	Isolation   string        `json:"isolation,omitempty"`
	Name        string        `json:"name,omitempty"`
	Dir         string        `json:"dir,omitempty"`
	MemoryBytes int64         `json:"memory_bytes,omitempty"`
	TTL         time.Duration `json:"ttl,omitempty"`
	Servers     *[]string     `json:"servers,omitempty"`
	Network     *[]string     `json:"network,omitempty"`
	Secrets     *[]string     `json:"secrets,omitempty"`
	Ephemeral   bool          `json:"passing,omitempty"`
	Machine     *Machine      `json:"machine,omitempty"`
}

// trailer is what is under endName.
type trailer struct {
	Blobs int `json:"blobs"`
}

// errNotWhole is for what is not an archive of a session, or not all of one.
func errNotWhole(format string, args ...any) *fault.Error {
	return fault.New(fault.Invalid, "this is not a whole session archive: "+format, args...).WithHint("export the session again, and copy the file whole")
}

var errTooLong = errors.New("sessionfile: there is more than there may be")
