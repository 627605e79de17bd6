// Package image keeps Linux images in a folder: it pulls them from registries,
// imports them from files, and gives each as one folder with a whole root file
// system. What it reads comes from anywhere: nothing in an image is believed,
// and nothing of it is written outside of its own folder.
//
// On the disk each layer is unpacked once, by the digest of its content, and an
// image is a tree of hard links into its layers. So images share what they have
// in common, and whoever uses a tree must not write into it: a box gets it
// read-only, with what it writes elsewhere.
//
// Several processes may share a folder. Locks, in the order in which they are
// taken: content (shared by who adds, alone for who removes), a layer's (one
// unpacks it, others wait), names (alone, to change the list of names), an
// image's use (shared by who uses it, alone for who removes it).
package image

import (
	"encoding/json"
	"errors"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"time"

	"github.com/google/go-containerregistry/pkg/v1/remote"

	"paddock/internal/blob"
	"paddock/internal/fault"
)

// Config is what a store is made with.
type Config struct {
	// Dir is the store's folder, which is made; it has to be on a file system with
	// hard links.
	Dir string
	// Credentials are for registries by their host, with its port where one is
	// named, as USER:PASSWORD. Where there are none, those of docker login (or
	// podman login) are used; nil: only these.
	Credentials map[string]string
	// Insecure are the registries that may be spoken to without TLS, as they are
	// named in references; nil: those on loopback addresses alone.
	Insecure []string
	// Bytes and Entries bound each image, unpacked: what its files take on disk,
	// and how many files and folders there are. Zero: 16 GiB and a million.
	Bytes, Entries int64
	// Transport is what requests are made with; nil: TCP, through the proxies that
	// the environment names.
	Transport http.RoundTripper

	retry remote.Backoff // the zero value: the library's own
	stall time.Duration  // how long a registry may send nothing; zero: a minute
}

// The bounds of an image when nobody says.
const (
	defaultBytes   = 16 << 30
	defaultEntries = 1 << 20
)

// Store is a folder with images. It is safe for concurrent use, and holds
// nothing between calls.
type Store struct {
	config Config
}

// Parts of the store's folder.
const (
	layersFolder = "layers" // unpacked layers, by the digest of their tar
	rootsFolder  = "roots"  // whole trees, by the image's ID
	locksFolder  = "locks"  // of layers that are being unpacked
	tempFolder   = "temp"   // what is not whole yet, or not any more
	namesFile    = "names.json"
	treeFolder   = "tree"       // in a layer and in a root: the files
	layerFile    = "layer.json" // what the tree of a layer does not say
	imageFile    = "image.json" // the image itself
	useFile      = "use"        // the lock of those who use a root
	contentLock  = "content.lock"
	namesLock    = "names.lock"
)

// Open opens a store; its folder is made when something is put into it. Images
// are for Linux: elsewhere it is a fault.Unsupported.
func Open(c Config) (*Store, error) {
	if runtime.GOOS != "linux" {
		return nil, fault.New(fault.Unsupported, "images run on Linux alone").WithHint("on this system programs run in WebAssembly")
	}
	if c.Bytes == 0 {
		c.Bytes = defaultBytes
	}
	if c.Entries == 0 {
		c.Entries = defaultEntries
	}
	if c.stall == 0 {
		c.stall = time.Minute
	}
	return &Store{config: c}, nil
}

// Settings are what an image says of how it wants to be run.
type Settings struct {
	Env        []string          `json:"env"` // NAME=value
	User       string            `json:"user"`
	WorkingDir string            `json:"working_dir"`
	Entrypoint []string          `json:"entrypoint"`
	Cmd        []string          `json:"cmd"`
	Labels     map[string]string `json:"labels"`
}

// LeftOut counts what of an image was not unpacked, or not as it was.
type LeftOut struct {
	Devices int `json:"devices"` // device nodes, FIFOs, and what is not known
	Setuid  int `json:"setuid"`  // setuid and setgid bits
	Xattrs  int `json:"xattrs"`  // files with extended attributes, capabilities among them
	Owners  int `json:"owners"`  // files of others than the user that they have now
}

func (l *LeftOut) add(m LeftOut) {
	l.Devices += m.Devices
	l.Setuid += m.Setuid
	l.Xattrs += m.Xattrs
	l.Owners += m.Owners
}

// Image is one that the store has.
type Image struct {
	// ID is the digest of the image's configuration, which names its layers:
	// the same ID is the same files.
	ID string `json:"id"`
	// Names are what it is called here, sorted; none: it was replaced under its
	// name, and goes with the next Prune that nothing keeps it from.
	Names []string `json:"names"`
	// Digest is what pins it in the registry: of the manifest, or of the index
	// that its name led to. Empty: it was imported.
	Digest   string    `json:"digest,omitempty"`
	Created  time.Time `json:"created,omitzero"` // as it says itself
	Added    time.Time `json:"added"`            // when it came here
	Layers   []string  `json:"layers"`           // their digests, the lowest first
	Bytes    int64     `json:"bytes"`            // of all its layers, unpacked
	Entries  int64     `json:"entries"`
	LeftOut  LeftOut   `json:"left_out"`
	Settings Settings  `json:"settings"`
}

// images reads all that are whole, by their ID, without names.
func (s *Store) images() (map[string]Image, error) {
	entries, err := os.ReadDir(s.path(rootsFolder))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, blob.Explain(err, "listing the images")
	}
	all := map[string]Image{}
	for _, e := range entries {
		id := digestPrefix + e.Name()
		if img, err := s.image(id); err == nil {
			all[id] = img
		} else if !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
	}
	return all, nil
}

// image reads one; fs.ErrNotExist: there is none.
func (s *Store) image(id string) (Image, error) {
	var img Image
	if !isDigest(id) {
		return img, fs.ErrNotExist
	}
	err := readJSON(filepath.Join(s.root(id), imageFile), &img)
	return img, err
}

func (s *Store) path(parts ...string) string {
	return filepath.Join(append([]string{s.config.Dir}, parts...)...)
}

// root is where the image of an ID is, and layer where the layer of a digest is.
func (s *Store) root(id string) string      { return s.path(rootsFolder, hexOf(id)) }
func (s *Store) layer(digest string) string { return s.path(layersFolder, hexOf(digest)) }

// readJSON reads a file of the store's own.
func readJSON(path string, v any) error {
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err != nil {
		return blob.Explain(err, "reading an image")
	}
	if err := json.Unmarshal(data, v); err != nil {
		return fault.New(fault.Unavailable, "the file %s of the images is damaged", filepath.Base(path)).
			WithHint("remove the folder images in the state folder, and pull them again").WithCause(err)
	}
	return nil
}

func writeJSON(path string, v any) error {
	data, err := json.Marshal(v)
	if err != nil {
		return err
	}
	return blob.WriteFile(blob.OS, path, append(data, '\n'))
}
