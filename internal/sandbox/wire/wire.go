// Package wire is the guest protocol between the server and the process that
// holds its guests: the wasm worker, or the agent inside a Linux sandbox.
//
// The two ends share one byte stream that the child inherits. It carries
// frames: a little-endian header of the body's length (u32), the kind (u8) and
// the instance's id (u32, chosen by the server, 0 for the process itself),
// then the body: JSON for everything but bytes (output, layers, streams, what calls say
// and are answered), which are raw. The first frame each way is [Hello] and [Ready], with
// the protocol's version.
//
// The server's end trusts nothing that it reads: a guest may have broken out
// into the process at the other end.
//
//	server → guest   hello, start, run, stdin, credit, interrupt, inspect, close,
//	                 layer, snapshot, taken, rewind, refresh, manage, dial, hold,
//	                 goOn, restored, reply, suspend, translated
//	guest → server   ready, started, stdout, stderr, display, wantStdin, done,
//	                 inspected, gone, wantLayer, data, saved, rewound, refreshed,
//	                 managed, dialed, held, survived, call, giveUp, opened,
//	                 translate
//	both ways        streamData, streamEnd, streamCredit, streamClose
//
// Output is bounded by credit: the guest's end may have [Window] bytes of
// stdout and stderr under way in each run, and more once the server has passed
// them on and says so. Displays have a limit of their own in [RunBody].
//
// A run may call the host (call), sandbox.CallsAtOnce times at once; each call has a
// number of the guest's own choice, with which it is answered (reply) or given up
// (giveUp). What is not answered when the run is done will not be, unless it ended
// as Waiting, as a suspend asks for: then the next run may continue it.
//
// A start that resumes a state is followed by the state's layers: raw frames,
// an empty one at the end of each. The server may have [Window] bytes of them
// under way, and more once the guest's end has taken them and says so
// (wantLayer); when it has an answer to the start it sends no more. A snapshot
// is data frames and then saved, under the same kind of credit (taken); an
// interrupt gives it up.
//
// What takes the types out of TypeScript lies at the server's end, for its cost is not
// known beforehand: the child may ask for that at any time (translate, with a number of its
// own), [TranslationsAtOnce] times at once.
//
// Where the child has a machine of its own, a dial connects a stream of bytes to
// a port of the machine, or to a terminal: see [Stream]. What connects to the child in the machine is a
// stream to the server (opened): see [Client.Accept]. A hold silences it until goOn, so that the
// machine can be saved between two frames. What goes on from there later, on another
// connection, is told so by restored in the place of goOn, and says by survived which
// instances it has.
package wire

import (
	"bufio"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"

	"paddock/internal/fault"
	"paddock/internal/sandbox"
)

// Version is the protocol's version; both ends must have the same, and do,
// being the same binary.
const Version = 10

// Window is how many bytes of output may be under way in one run, of a snapshot,
// and of a state's layers.
const Window = 1 << 20

// DefaultMemory bounds an instance whose start sets no limit, in bytes.
const DefaultMemory = 256 << 20

// MaxState is how long a snapshot's State may be, and MaxLayers how many layers
// a start may bring.
const (
	MaxState  = 64 << 10
	MaxLayers = 1 << 16
)

// maxBody bounds one frame: a program of a megabyte in JSON, or a display.
const maxBody = 40 << 20

// Kind says what a frame is.
type Kind uint8

// The kinds of frames.
const (
	KindHello Kind = iota + 1
	KindStart
	KindRun
	KindStdin // raw; empty: end of input
	KindCredit
	KindInterrupt
	KindInspect
	KindClose
	KindReady
	KindStarted
	KindStdout // raw
	KindStderr // raw
	KindDisplay
	KindWantStdin
	KindDone
	KindInspected
	KindGone
	KindLayer // raw; empty: end of one
	KindSnapshot
	KindTaken
	KindRewind
	KindWantLayer
	KindData // raw
	KindSaved
	KindRewound
	KindRefresh
	KindRefreshed // an [StatusBody]
	KindManage    // a [ManageBody], for instance 0
	KindManaged   // a [ManagedBody], likewise
	// What follows is about a [Stream], whose number is the frame's ID.
	KindDial         // a [DialBody]
	KindDialed       // a [DialedBody]
	KindStreamData   // raw
	KindStreamEnd    // nothing more comes from there
	KindStreamCredit // a [CreditBody]
	KindStreamClose  // it is over, in both directions; cut off, where no KindStreamEnd came before
	// What follows is about a child that is saved with its machine, see
	// [Client.Hold]. The first three have the number of the hold as ID.
	KindHold
	KindHeld     // an [StatusBody]
	KindGoOn     // after a hold
	KindRestored // or this: a [RestoredBody]
	KindSurvived // a [SurvivedBody]
	// What follows is about a call of a run: its number (u32), and raw what it says.
	KindCall
	KindReply
	KindGiveUp  // nothing behind the number; a reply may be under way
	KindSuspend // a run shall end when it does nothing but wait for calls
	// A program of the machine has connected to where the child listens for the server:
	// the frame's ID is the new [Stream]'s number, and data may follow at once. Where
	// nobody serves it, it is closed. The server says KindStreamClose once for each, also
	// where the child has said it: until it has, the stream is one of those at once.
	KindOpened
	// What follows is about TypeScript; the frame's ID is the child's number of it.
	KindTranslate  // a [sandbox.Source]
	KindTranslated // a [sandbox.Translation]
)

// Frame is one message.
type Frame struct {
	Kind Kind
	ID   uint32
	Body []byte
}

// Hello is the first frame to a child: how it is to set itself up. Setup is
// the backend's own matter.
type Hello struct {
	Version int             `json:"version"`
	Setup   json.RawMessage `json:"setup,omitempty"`
}

// Ready is its answer.
type Ready struct {
	Version     int                  `json:"version"`
	Error       string               `json:"error,omitempty"`
	Protections []sandbox.Protection `json:"protections,omitempty"`
}

// StartBody asks for an instance; it is answered by an [StatusBody]. At most one
// of Resume and Fork is there.
type StartBody struct {
	Runtime     string            `json:"runtime"`
	Mounts      []MountBody       `json:"mounts,omitempty"`
	Dir         string            `json:"dir,omitempty"`
	Env         map[string]string `json:"env,omitempty"`
	MemoryBytes int64             `json:"memory_bytes,omitempty"`
	Snapshots   bool              `json:"snapshots,omitempty"`
	Resume      *ResumeBody       `json:"resume,omitempty"`
	Fork        *ForkBody         `json:"fork,omitempty"`
	// UID and GID are whom the instance's processes become; zeros: whoever the
	// child is.
	UID int `json:"uid,omitempty"`
	GID int `json:"gid,omitempty"`
}

// Memory is the instance's limit, in bytes.
func (b StartBody) Memory() int64 {
	if b.MemoryBytes > 0 {
		return b.MemoryBytes
	}
	return DefaultMemory
}

// ResumeBody is a sandbox.Resume; so many layers follow the start.
type ResumeBody struct {
	State  []byte `json:"state"`
	Layers int    `json:"layers"`
	Reseed bool   `json:"anew,omitempty"`
}

// ForkBody names a state that another instance of the same child has at hand.
type ForkBody struct {
	ID   uint32 `json:"id"`
	Mark string `json:"mark"`
}

// MountBody is a sandbox.Mount as the child sees it.
type MountBody struct {
	Guest     string   `json:"guest"`
	Aliases   []string `json:"aliases,omitempty"`
	Host      string   `json:"host"`
	ReadOnly  bool     `json:"read_only,omitempty"`
	Shared    bool     `json:"shared,omitempty"` // Host lies where the child may only read
	DiskBytes int64    `json:"disk_bytes,omitempty"`
}

// StatusBody says whether what was asked for was done.
type StatusBody struct {
	Kind    string `json:"kind,omitempty"` // a fault.Kind; empty: it was
	Message string `json:"message,omitempty"`
	Hint    string `json:"hint,omitempty"`
}

// ErrorBody is the answer for a fault.
func ErrorBody(f *fault.Error) StatusBody {
	return StatusBody{Kind: string(f.Kind), Message: f.Message, Hint: f.Hint}
}

func (a StatusBody) err() error {
	if a.Kind == "" {
		return nil
	}
	return fault.New(fault.Kind(a.Kind), "%s", a.Message).WithHint("%s", a.Hint)
}

// SnapshotBody asks for a snapshot; data and a [SavedBody] answer it.
type SnapshotBody struct {
	Whole    bool   `json:"whole,omitempty"`
	Portable bool   `json:"portable,omitempty"`
	Mark     string `json:"mark,omitempty"`
}

// SavedBody ends a snapshot.
type SavedBody struct {
	StatusBody
	Snapshot sandbox.Snapshot `json:"snapshot"`
}

// RewindBody asks for an earlier state; an [StatusBody] answers it.
type RewindBody struct {
	Mark string `json:"mark"`
}

// RunBody is a sandbox.Command without its streams.
type RunBody struct {
	Code     string   `json:"code"`
	Language string   `json:"language,omitempty"`
	Name     string   `json:"name,omitempty"`
	Args     []string `json:"args,omitempty"`
	Stdin    bool     `json:"stdin,omitempty"`
	// Continue goes on with a program that waits for these calls, in place of Code.
	Continue []uint32          `json:"continue,omitempty"`
	Limits   sandbox.RunLimits `json:"limits"`
}

// DoneBody is how a run ended: a sandbox.Exit, and for what a Waiting one waits.
type DoneBody struct {
	sandbox.Exit
	Waits []uint32 `json:"waits,omitempty"`
}

// CreditBody allows more: output, a snapshot's data, layers.
type CreditBody struct {
	Bytes int `json:"bytes"`
}

// InterruptBody stops a run; Cause is what its Exit shall say.
type InterruptBody struct {
	Cause sandbox.Cause `json:"cause"`
}

// DisplayBody is a display's type; its data follows the JSON and a line feed.
type DisplayBody struct {
	MIME string `json:"mime"`
}

// GoneBody says why an instance ended by itself.
type GoneBody struct {
	Message string `json:"message"`
}

const headerSize = 9

// errTooLong is for a frame that is longer than it may be; the connection goes on.
var errTooLong = errors.New("a frame is too long")

// Conn reads and writes frames. Write may be called from several goroutines,
// Read from one.
type Conn struct {
	stream io.ReadWriteCloser
	in     *bufio.Reader // of stream
	header [headerSize]byte
	spare  atomic.Pointer[[]byte] // that Reuse was given

	mu     sync.Mutex // guards writing
	buffer []byte
}

// NewConn puts frames on stream, which it owns from then on.
func NewConn(stream io.ReadWriteCloser) *Conn {
	return &Conn{stream: stream, in: bufio.NewReaderSize(stream, readAhead)}
}

// readAhead is how much of what comes is read at once: a frame of a run as a rule.
const readAhead = 4 << 10

// Close closes the stream, which ends a Read and a Write under way.
func (c *Conn) Close() error { return c.stream.Close() }

// Read gives the next frame; its body is the caller's. io.EOF means that the
// other end has closed the stream between two frames.
func (c *Conn) Read() (Frame, error) {
	if _, err := io.ReadFull(c.in, c.header[:]); err != nil {
		if errors.Is(err, io.ErrUnexpectedEOF) {
			return Frame{}, fmt.Errorf("reading a frame's header: %w", err)
		}
		return Frame{}, err
	}
	n := binary.LittleEndian.Uint32(c.header[:])
	if n > maxBody {
		return Frame{}, fmt.Errorf("a frame of %d bytes is over the limit of %d", n, maxBody)
	}
	f := Frame{Kind: Kind(c.header[4]), ID: binary.LittleEndian.Uint32(c.header[5:])}
	if n == 0 {
		return f, nil
	}
	f.Body = c.memory(int(n))
	if _, err := io.ReadFull(c.in, f.Body); err != nil {
		return Frame{}, fmt.Errorf("reading a frame's body: %w", err)
	}
	return f, nil
}

// memory is where a frame's body of n bytes goes. What is large has room to spare, so that
// it fits again after Reuse was given all of it but a few bytes at its beginning.
func (c *Conn) memory(n int) []byte {
	if n < largePart {
		return make([]byte, n)
	}
	if spare := c.spare.Swap(nil); spare != nil && n <= cap(*spare) {
		return (*spare)[:n]
	}
	return make([]byte, n, (n|4095)+1)
}

// Reuse gives Read the memory of a body, or of its end, for another one. It is not the
// caller's any more. Small ones are as quickly made.
func (c *Conn) Reuse(body []byte) {
	if size := cap(body); size >= largePart && size <= 2*Window {
		c.spare.Store(&body)
	}
}

// Write sends one frame whose body is the parts one after the other.
func (c *Conn) Write(kind Kind, id uint32, parts ...[]byte) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.writeLocked(kind, id, parts...)
}

func (c *Conn) writeLocked(kind Kind, id uint32, parts ...[]byte) error {
	size := 0
	for _, p := range parts {
		size += len(p)
	}
	if size > maxBody {
		return fmt.Errorf("%w: its %d bytes are over the limit of %d", errTooLong, size, maxBody)
	}
	c.buffer = binary.LittleEndian.AppendUint32(c.buffer[:0], uint32(size))
	c.buffer = append(c.buffer, byte(kind))
	c.buffer = binary.LittleEndian.AppendUint32(c.buffer, id)
	for k, p := range parts {
		if len(p) >= largePart {
			return c.writeLargeLocked(parts[k:])
		}
		c.buffer = append(c.buffer, p...)
	}
	_, err := c.stream.Write(c.buffer)
	if cap(c.buffer) > 4*Window {
		c.buffer = nil
	}
	return err
}

// largePart is how long a part is that is not copied: the kernel is given it as it lies
// there.
const largePart = 32 << 10

// writeLargeLocked sends what is in the buffer, and parts behind it.
func (c *Conn) writeLargeLocked(parts [][]byte) error {
	all := append(net.Buffers{c.buffer}, parts...)
	_, err := all.WriteTo(c.stream)
	return err
}

// WriteJSON sends one frame with v as its body.
func (c *Conn) WriteJSON(kind Kind, id uint32, v any) error {
	body, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("encoding a frame: %w", err)
	}
	return c.Write(kind, id, body)
}
