// Package linear holds guests' linear memories: private copy-on-write
// mappings of an image, which is a memory captured once and kept in a file.
// A fresh interpreter is a new mapping; what it has of its own are the pages
// that it wrote.
//
// Where the system has no such mapping the image's pages are copied: the same
// behaviour, more slowly.
package linear

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"
	"unsafe"

	"paddock/internal/atomicfile"
)

// PageSize is the unit in which memory is compared and saved, in bytes. It is
// the system's page size or a part of it.
const PageSize = 4096

// wasmPage is the unit in which a linear memory grows.
const wasmPage = 64 << 10

// magic begins an image file; its digit is the format's version.
const magic = "paddock image 2\n"

// headRoom is where the memory begins in the file: after the magic, the
// length of the notes (u32) and the notes, and a multiple of every system's
// page size.
const headRoom = 64 << 10

// Notes are kept with an image: what the host has to know to go on with it.
type Notes struct {
	Bytes        uint64   `json:"bytes"`         // the memory's length
	StackPointer uint64   `json:"stack_pointer"` // of the module's C stack
	State        []uint64 `json:"state"`         // the language's own
}

// head is what the file begins with, after the magic.
type head struct {
	Notes
	Digest string `json:"digest"`
}

// Image is a captured memory. It is safe for concurrent use.
type Image struct {
	Notes
	// Digest is the hex SHA-256 of the notes and the memory, from when it was
	// written: where it is the same, so are all pages. Opening does not check it.
	Digest string

	file *os.File

	loading sync.Mutex // held while base is being loaded
	base    []byte     // the whole memory, shared and read-only; only where it is needed

	spares spares
}

// Write puts an image of memory at path, whole or not at all. Pages of zeros
// take no room.
func Write(path string, memory []byte, notes Notes) error {
	notes.Bytes = uint64(len(memory))
	text, err := json.Marshal(head{notes, digest(memory, notes)})
	if err != nil {
		return err
	}
	begin := binary.LittleEndian.AppendUint32([]byte(magic), uint32(len(text)))
	begin = append(begin, text...)
	if len(begin) > headRoom {
		return errors.New("the image's notes are too long")
	}
	f, err := atomicfile.Create(path, atomicfile.Options{Mode: 0o444, Durable: true, Prefix: ".image-"})
	if err != nil {
		return err
	}
	defer f.Discard()
	if err := f.Truncate(int64(headRoom + len(memory))); err != nil {
		return err
	}
	if _, err := f.WriteAt(begin, 0); err != nil {
		return err
	}
	for at := 0; at < len(memory); at += PageSize {
		page := memory[at:min(at+PageSize, len(memory))]
		if isZero(page) {
			continue
		}
		if _, err := f.WriteAt(page, int64(headRoom+at)); err != nil {
			return err
		}
	}
	return f.Commit()
}

// digest names a memory and its notes.
func digest(memory []byte, notes Notes) string {
	h := sha256.New()
	about := []uint64{notes.Bytes, notes.StackPointer, uint64(len(notes.State))}
	for _, n := range append(about, notes.State...) {
		h.Write(binary.LittleEndian.AppendUint64(nil, n))
	}
	h.Write(memory)
	return hex.EncodeToString(h.Sum(nil))
}

// Open opens the image at path.
func Open(path string) (*Image, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	img, err := read(f)
	if err != nil {
		f.Close()
		return nil, fmt.Errorf("image %s: %w", filepath.Base(path), err)
	}
	return img, nil
}

func read(f *os.File) (*Image, error) {
	begin := make([]byte, headRoom)
	if _, err := io.ReadFull(f, begin); err != nil {
		return nil, err
	}
	rest, ok := bytes.CutPrefix(begin, []byte(magic))
	if !ok {
		return nil, errors.New("it is not an image of this version")
	}
	n := binary.LittleEndian.Uint32(rest)
	if int(n) > len(rest)-4 {
		return nil, errors.New("its head is damaged")
	}
	var notes head
	if err := json.Unmarshal(rest[4:4+n], &notes); err != nil {
		return nil, fmt.Errorf("its notes: %w", err)
	}
	img := &Image{Notes: notes.Notes, Digest: notes.Digest, file: f}
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if img.Bytes%wasmPage != 0 || info.Size() != int64(headRoom+img.Bytes) {
		return nil, errors.New("it is not complete")
	}
	return img, img.prepare()
}

// Close closes the image's file; memories that were mapped from it stay.
func (img *Image) Close() error {
	img.spares.drop()
	return img.file.Close()
}

func isZero(p []byte) bool {
	for len(p) >= 8 {
		if binary.NativeEndian.Uint64(p) != 0 {
			return false
		}
		p = p[8:]
	}
	for _, b := range p {
		if b != 0 {
			return false
		}
	}
	return true
}

// Memory is one guest's linear memory. It is used by one goroutine at a time.
type Memory struct {
	all     []byte // what the memory may become
	length  uint64
	limit   uint64
	image   *Image
	refused bool
	guard   uint64 // the whole reservation where what is beyond length is not there; else 0
	marks
}

// New maps img, or zeros where img is nil, for a guest that may grow to limit
// bytes.
func New(img *Image, limit uint64) (*Memory, error) {
	limit = limit / wasmPage * wasmPage
	m := &Memory{limit: limit, image: img}
	if img != nil {
		if img.Bytes > limit {
			return nil, fmt.Errorf("a limit of %d bytes is below the %d that the interpreter itself needs", limit, img.Bytes)
		}
		m.length = img.Bytes
	}
	return m, m.reserve()
}

// NewGuarded is New with a reservation of so many bytes, in which all that the
// memory does not have faults when it is touched. Not every system can do it.
func NewGuarded(img *Image, limit, reservation uint64) (*Memory, error) {
	m := &Memory{limit: min(limit, reservation) / wasmPage * wasmPage, image: img, guard: reservation}
	if img != nil {
		if img.Bytes > m.limit {
			return nil, fmt.Errorf("a limit of %d bytes is below the %d that the interpreter itself needs", limit, img.Bytes)
		}
		m.length = img.Bytes
	}
	return m, m.reserve()
}

// Base is where the memory begins; it never moves.
func (m *Memory) Base() unsafe.Pointer { return unsafe.Pointer(unsafe.SliceData(m.all)) }

// Bytes is the memory as long as it is now. It is valid until the next
// Reallocate.
func (m *Memory) Bytes() []byte { return m.all[:m.length:m.length] }

// Reallocate makes the memory size bytes long; it never shrinks. Beyond the
// limit it gives nil, which the guest sees as a failed allocation.
func (m *Memory) Reallocate(size uint64) []byte {
	if size > m.limit {
		m.refused = true
		return nil
	}
	if size > m.length && m.guard > 0 && m.open(m.length, size) != nil {
		m.refused = true
		return nil
	}
	m.length = max(m.length, size)
	return m.all[:m.length:m.limit]
}

// Room is by how many bytes the memory can still grow.
func (m *Memory) Room() uint64 { return m.limit - m.length }

// Refused tells whether a growth has been refused since the last call.
func (m *Memory) Refused() bool {
	r := m.refused
	m.refused = false
	return r
}

// Page is page number n, for reading and writing.
func (m *Memory) Page(n uint32) []byte {
	at := uint64(n) * PageSize
	return m.all[at : at+PageSize]
}

// Pages are count pages from number n on, for reading and writing.
func (m *Memory) Pages(n uint32, count int) []byte {
	at := uint64(n) * PageSize
	return m.all[at : at+uint64(count)*PageSize]
}
