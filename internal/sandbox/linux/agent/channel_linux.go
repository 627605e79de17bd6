package agent

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"

	"golang.org/x/sys/unix"

	"paddock/internal/sandbox"
	"paddock/internal/sandbox/wire/serve"
)

// What agent and kernel say to each other. A frame is its kind, a number and the
// length of what follows (u8, u32, u32, little-endian). A kernel sends messages
// while it has a request to answer, and waits for the reply to each.
const (
	frameRequest = 'q' // to the kernel: JSON, as guest/README.md describes it
	frameStop    = 'i' // to it, with a request's number: interrupt that program, if you can hear this
	frameBegun   = 'b' // from it, with the request's number: it can be interrupted
	frameAnswer  = 'a' // from it, with the request's number: JSON
	frameMessage = 'm' // from it: a line of JSON, and bytes
	frameReply   = 'r' // to it, with the message's number

	// Over the socket for calls, each with its call's number:
	frameCall   = 'c' // from it: what the host is asked
	frameGiveUp = 'g' // from it: nobody waits for the answer any more
	// and frameReply, with the answer; an empty one says that there is none. And
	frameSuspend = 's' // to it, with a request's number: answer that when its program does nothing but wait for calls
)

// A kernel that has answered a request by serve.StatusWaiting does nothing of its
// program until it gets one to resume or to interrupt it, which that program's answer is
// for then. It reads requests where it reads replies to messages.
const (
	opResume    = "resume"
	opInterrupt = "interrupt"
)

const frameHeader = 9

// readAhead is how much of what comes is read at once: an answer as a rule.
const readAhead = 4 << 10

// mostOf is how long what a kernel says may be.
var mostOf = map[byte]uint32{frameBegun: 0, frameAnswer: 4 << 20, frameMessage: 33 << 20}
var mostOfCalls = map[byte]uint32{frameCall: sandbox.MaxCalls, frameGiveUp: 0}

// errBroken ends a kernel that does not keep to this.
var errBroken = errors.New("the program broke the interpreter's connection to the sandbox")

// channel is the agent's end of the connection to one kernel. What comes from it
// is the program's word, for the program can reach the other end.
type channel struct {
	sockets []*os.File // the first takes requests; messages may come over any
	caller  *caller    // nil: nobody calls
	codec
	gone chan struct{}  // closed when a socket has ended
	work sync.WaitGroup // the readers, and requests on their way

	mu     sync.Mutex // guards what follows
	number uint32     // of the latest request
	answer chan []byte
	begun  chan struct{} // see expect
	failed error         // why it ended
}

// codec is how a kernel is spoken with.
type codec struct {
	// encode makes a frame of a request.
	encode func(number uint32, r request) ([]byte, error)
	// read reads what comes until the socket ends; errBroken is for what makes no
	// sense.
	read func(c *channel, s *os.File) error
	// message answers what the kernel asks while it runs a program; when stop is
	// closed nobody waits for it any more.
	message func(body []byte, stop <-chan struct{}) []byte
	// calls are asked by what comes over one more socket, the last; nil: there is none.
	calls *serve.Calls
}

// request is what a driver is asked for. Its fields are those of guest/README.md.
type request struct {
	Op    string   `json:"op"`
	Code  string   `json:"code"`
	Map   string   `json:"map,omitempty"`
	Name  string   `json:"name,omitempty"`
	Args  []string `json:"args"`
	Stdin string   `json:"stdin,omitempty"` // a path, for the shell
	Seed  string   `json:"seed,omitempty"`  // 64 hexadecimal digits, for awaken
}

// newChannel makes one with so many sockets, and gives the kernel's ends.
func newChannel(sockets int, speech codec) (c *channel, theirs []*os.File, err error) {
	c = &channel{codec: speech, gone: make(chan struct{})}
	if speech.calls != nil {
		sockets++
	}
	for range sockets {
		fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
		if err == nil {
			err = unix.SetNonblock(fds[0], true)
		}
		if err != nil {
			closeAll(append(c.sockets, theirs...))
			return nil, nil, fmt.Errorf("making a connection to an interpreter: %w", err)
		}
		c.sockets, theirs = append(c.sockets, os.NewFile(uintptr(fds[0]), "channel")), append(theirs, os.NewFile(uintptr(fds[1]), "channel"))
	}
	said := c.sockets
	if speech.calls != nil {
		last := len(said) - 1
		c.caller = newCaller(c, c.sockets[last])
		c.work.Go(func() { c.fail(c.caller.read()) })
		said = said[:last]
	}
	for _, s := range said {
		c.work.Go(func() { c.fail(c.codec.read(c, s)) })
	}
	return c, theirs, nil
}

func closeAll(files []*os.File) {
	for _, f := range files {
		f.Close()
	}
}

// close ends it and waits for its goroutines.
func (c *channel) close() {
	c.fail(os.ErrClosed)
	c.work.Wait()
}

func (c *channel) fail(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.failed == nil {
		c.failed = err
		closeAll(c.sockets)
		close(c.gone)
	}
}

// broken tells whether the kernel is what ended it, by saying what makes no sense.
func (c *channel) broken() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return errors.Is(c.failed, errBroken)
}

// readFrames reads what a driver in Python or JavaScript says.
func readFrames(c *channel, s *os.File) error {
	in := bufio.NewReaderSize(s, readAhead)
	end := func() {} // gives the message up that is being answered
	defer func() { end() }()
	for {
		kind, number, body, err := readFrame(in, mostOf)
		if err != nil {
			return err
		}
		end()
		end = func() {}
		switch kind {
		case frameBegun:
			c.began(number)
		case frameAnswer:
			c.answered(number, body)
		default:
			end = c.reply(s, number, body)
		}
	}
}

// readFrame reads one frame of these kinds, whose lengths are at most so much.
func readFrame(in *bufio.Reader, most map[byte]uint32) (kind byte, number uint32, body []byte, err error) {
	var header [frameHeader]byte
	if _, err := io.ReadFull(in, header[:]); err != nil {
		return 0, 0, nil, err
	}
	kind, number, length := header[0], binary.LittleEndian.Uint32(header[1:]), binary.LittleEndian.Uint32(header[5:])
	if limit, ok := most[kind]; !ok || length > limit {
		return 0, 0, nil, errBroken
	}
	// It grows as the bytes come: a length alone costs nothing.
	var all bytes.Buffer
	_, err = io.CopyN(&all, in, int64(length))
	return kind, number, all.Bytes(), err
}

// reply answers a message in the background, and gives what ends that.
func (c *channel) reply(s *os.File, number uint32, body []byte) (end func()) {
	stop, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		if _, err := s.Write(frame(frameReply, number, c.message(body, stop))); err != nil {
			c.fail(err)
		}
	}()
	return func() {
		close(stop)
		<-done
	}
}

func (c *channel) began(number uint32) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if number == c.number && c.begun != nil && !isClosed(c.begun) {
		close(c.begun)
	}
}

// expect is called before a program is asked for. What it gives is closed when
// the program is about to run: it can be interrupted, and has opened its input.
func (c *channel) expect() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.begun = make(chan struct{})
	return c.begun
}

// answered hands an answer to whom it is for; a late one is for nobody.
func (c *channel) answered(number uint32, body []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.answer != nil && number == c.number {
		c.answer <- body
		c.answer = nil
	}
}

// ask sends a request to a kernel, one whose program waits or not, and gives where its
// answer will be. It does not wait until the kernel has taken the request: that may be
// busy, with what a program left in it.
func (c *channel) ask(r request, waits bool) (<-chan []byte, error) {
	answer := make(chan []byte, 1)
	c.mu.Lock()
	c.number++
	number := c.number
	c.answer = answer
	c.mu.Unlock()
	f, err := c.encode(number, r)
	if err != nil {
		return nil, err
	}
	to := c.sockets[0]
	if waits && c.caller != nil {
		to = c.sockets[len(c.sockets)-2]
	}
	c.work.Go(func() {
		if _, err := to.Write(f); err != nil {
			c.fail(err)
		}
	})
	return answer, nil
}

// suspend asks the kernel to answer the latest request when its program does nothing but
// wait for calls.
func (c *channel) suspend() {
	c.mu.Lock()
	number := c.number
	c.mu.Unlock()
	c.work.Go(func() { c.caller.write(frame(frameSuspend, number, nil)) })
}

// stop asks the kernel to interrupt the program of the latest request. One that
// computes does not hear it.
func (c *channel) stop() {
	c.mu.Lock()
	number := c.number
	c.mu.Unlock()
	c.work.Go(func() {
		if _, err := c.sockets[0].Write(frame(frameStop, number, nil)); err != nil {
			c.fail(err)
		}
	})
}

// encodeFrame is for a driver in Python or JavaScript.
func encodeFrame(number uint32, r request) ([]byte, error) {
	text, err := json.Marshal(r)
	return frame(frameRequest, number, text), err
}

func frame(kind byte, number uint32, body []byte) []byte {
	f := make([]byte, 0, frameHeader+len(body))
	f = append(f, kind)
	f = binary.LittleEndian.AppendUint32(f, number)
	f = binary.LittleEndian.AppendUint32(f, uint32(len(body)))
	return append(f, body...)
}

// outcome is a driver's answer.
type outcome struct {
	serve.Outcome
	// PID is the kernel's process, where that is another one now.
	PID int `json:"pid"`
}

// What an outcome says at most, in bytes. The drivers stay below that.
const (
	maxResult      = 128 << 10
	maxMessageText = 64 << 10
)

// outcomeOf reads an answer, and cuts what is longer than any has to be.
func outcomeOf(answer []byte) (outcome, error) {
	var o outcome
	if err := json.Unmarshal(answer, &o); err != nil {
		return o, errBroken
	}
	o.ExitCode &= 0xFF
	o.Result = o.Result[:min(len(o.Result), maxResult)]
	if e := o.Error; e != nil {
		for _, text := range []*string{&e.Type, &e.Message, &e.Hint, &e.Traceback} {
			*text = (*text)[:min(len(*text), maxMessageText)]
		}
		e.Line = max(e.Line, 0)
	}
	return o, nil
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}
