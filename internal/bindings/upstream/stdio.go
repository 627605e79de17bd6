package upstream

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"paddock/internal/secret/redact"
)

// inherited are the variables that a server's program gets of paddock's own; on
// Windows nothing starts without some more.
var inherited = []string{
	"PATH", "HOME", "LANG", "TMPDIR",
	"SYSTEMROOT", "SYSTEMDRIVE", "COMSPEC", "PATHEXT", "TEMP", "TMP", "USERPROFILE", "APPDATA", "LOCALAPPDATA",
}

const (
	// closeGrace is how long a program may take to end once its input has, and again
	// once it was asked to.
	closeGrace = 2 * time.Second
	// killGrace is the same for one with which no revision was agreed upon.
	killGrace = 200 * time.Millisecond
	// drains is how long what it wrote before its end may take to be read.
	drains = time.Second
)

// process is a link to a program that this one started.
type process struct {
	*mux
	cmd    *exec.Cmd
	group  group
	stdin  *os.File
	stdout *os.File
	errors *os.File
	hide   *redact.Redactor
	tail   *tail

	writing chan struct{} // holds one token while a line is written
	dead    chan struct{} // closed when the program is gone, and its group
	exited  chan struct{} // closed when in addition what it wrote was read
	useless atomic.Bool   // no revision was agreed upon: it has nothing to put away
	once    sync.Once
	readers sync.WaitGroup
	waiter  sync.WaitGroup
}

var _ link = (*process)(nil)

// start starts a server's program.
func start(s Server, o Options, log *slog.Logger, hear func(message)) (*process, error) {
	env := environment(s.Env, o.Environ)
	path, err := find(s.Command, env)
	if err != nil {
		p := newProblem(Unreachable, false, err, "there is no program %q that could be started", s.Command)
		p.hint = "check its command, and the PATH that paddock runs with"
		return nil, p
	}
	p := &process{writing: make(chan struct{}, 1), dead: make(chan struct{}), exited: make(chan struct{}), hide: o.Hide, tail: newTail(s.Env, log)}
	p.mux = newMux(hear, p.write)
	p.cmd = &exec.Cmd{Path: path, Args: append([]string{s.Command}, s.Args...), Env: env, Dir: s.Dir}
	if p.cmd.Dir == "" {
		p.cmd.Dir = os.TempDir()
	}
	if err := p.launch(); err != nil {
		return nil, newProblem(Unreachable, false, err, "its program could not be started")
	}
	p.readers.Go(func() { p.listenTo(p.hidden(lines(p.stdout, s.limit(), p.noise))) })
	p.readers.Go(func() { p.tail.readFrom(p.errors, p.hide) })
	p.waiter.Go(p.wait)
	return p, nil
}

// launch starts the program at the other ends of three pipes.
func (p *process) launch() (err error) {
	var theirs, mine []*os.File
	pipe := func(input bool) *os.File {
		r, w, e := os.Pipe()
		if e != nil {
			err = errors.Join(err, e)
			return nil
		}
		if input {
			r, w = w, r
		}
		theirs, mine = append(theirs, w), append(mine, r)
		return r
	}
	p.stdin, p.stdout, p.errors = pipe(true), pipe(false), pipe(false)
	if err == nil {
		p.cmd.Stdin, p.cmd.Stdout, p.cmd.Stderr = theirs[0], theirs[1], theirs[2]
		err = p.group.start(p.cmd)
	}
	for _, f := range theirs {
		_ = f.Close()
	}
	if err != nil {
		for _, f := range mine {
			_ = f.Close()
		}
	}
	return err
}

// listenTo reads messages. A program that closes its output, or sends what cannot be
// used, is ended; that of the first kind can say how itself.
func (p *process) listenTo(next func() ([]byte, error)) {
	err := p.pass(next)
	if asProblem(err, true).reason != Closed {
		p.fail(err)
		p.group.kill()
		return
	}
	timer := time.NewTimer(drains)
	defer timer.Stop()
	select {
	case <-p.dead:
	case <-timer.C:
		p.fail(err)
		p.group.kill()
	}
}

// wait sees the program off: what it started is killed, what it wrote is read.
func (p *process) wait() {
	err := p.group.wait(p.cmd) // and nobody of its group lives on
	close(p.dead)
	ended := make(chan struct{})
	go func() { p.readers.Wait(); close(ended) }()
	timer := time.NewTimer(drains)
	defer timer.Stop()
	select {
	case <-ended:
	case <-timer.C: // somebody has left the group and holds the pipes
	}
	_ = p.stdout.Close()
	_ = p.errors.Close()
	<-ended
	_ = p.stdin.Close()
	if err == nil {
		err = errors.New("exit status 0")
	}
	p.fail(newProblem(Closed, true, err, "its program ended (%v)", err))
	close(p.exited)
}

// close has the program end: by the end of its input, then by a signal, then by
// force. It takes two times lingers at most, and a little; a fifth of a second at most
// each time where no revision was agreed upon.
func (p *process) close() error {
	p.fail(newProblem(Closed, true, nil, "the connection was closed"))
	p.once.Do(func() {
		_ = p.stdin.Close()
		timeout := closeGrace
		if p.useless.Load() {
			timeout = killGrace
		}
		for _, next := range []func(){p.group.ask, p.group.kill} {
			timer := time.NewTimer(timeout)
			select {
			case <-p.exited:
				timer.Stop()
				return
			case <-timer.C:
				next()
			}
		}
	})
	p.waiter.Wait()
	p.tasks.Wait()
	return nil
}

// write writes a line. One that was cut short ends the connection, as nothing could
// follow it.
func (p *process) write(ctx context.Context, data []byte) (sent bool, err error) {
	select {
	case p.writing <- struct{}{}:
		defer func() { <-p.writing }()
	case <-ctx.Done():
		return false, ctx.Err()
	}
	if err := ctx.Err(); err != nil {
		return false, err
	}
	stop := context.AfterFunc(ctx, func() { _ = p.stdin.SetWriteDeadline(time.Unix(1, 0)) })
	n, err := p.stdin.Write(append(data, '\n'))
	if !stop() && err == nil {
		_ = p.stdin.SetWriteDeadline(time.Time{})
	}
	if err == nil {
		return true, nil
	}
	late := errors.Is(err, os.ErrDeadlineExceeded)
	if n == 0 && late {
		_ = p.stdin.SetWriteDeadline(time.Time{})
	} else {
		p.deaf(err, late)
	}
	if ctx.Err() != nil {
		return n > 0, ctx.Err()
	}
	why := *asProblem(p.why(), n > 0)
	why.sent = n > 0
	return n > 0, &why
}

// deaf ends the connection to a program that does not read. Why it does not it says
// itself where it has ended.
func (p *process) deaf(err error, late bool) {
	if !late {
		timer := time.NewTimer(drains)
		defer timer.Stop()
		select {
		case <-p.exited:
		case <-timer.C:
		}
	}
	p.fail(newProblem(Closed, true, err, "it does not read what it is sent"))
}

// noise takes a line that is not a message: programs print things. It counts as one.
func (p *process) noise(line []byte) error {
	p.tail.note(p.hide.Bytes(line))
	return p.count()
}

// hidden gives messages without what is to be hidden: whatever is made of them, and kept,
// has nothing of it.
func (p *process) hidden(next func() ([]byte, error)) func() ([]byte, error) {
	return func() ([]byte, error) {
		data, err := next()
		return p.hide.JSON(data), err
	}
}

func (p *process) settle(string) {}

// listen asks for notifications where the server does not send them unasked.
func (p *process) listen(ctx context.Context, r outgoing) error {
	if r.method == "" {
		return errNoStream
	}
	_, err := p.call(ctx, r)
	return err
}

// stderr is what the program wrote there last, once it may be complete.
func (p *process) stderr() string { return p.tail.String() }

// looksLikeMessage tells a message from what programs print besides: JSON of a logger, or
// what is none, such as a dictionary of Python's. What says that it is a message is one,
// whatever is wrong with it, and so is an answer that does not say so.
func looksLikeMessage(line []byte) bool {
	switch {
	case len(line) == 0 || line[0] != '{':
		return false
	case bytes.HasPrefix(line, []byte(`{"jsonrpc"`)):
		return true
	case bytes.Contains(line, []byte(`"jsonrpc"`)):
		var says struct {
			JSONRPC json.RawMessage `json:"jsonrpc"`
		}
		err := json.Unmarshal(line, &says)
		return err != nil || says.JSONRPC != nil
	}
	m, err := decode(line)
	return err == nil && m.isAnswer() && m.number() > 0
}

// lines gives what looks like a message, line by line; other lines go to noise.
func lines(r io.Reader, limit int, noise func([]byte) error) func() ([]byte, error) {
	b := bufio.NewReaderSize(r, 64<<10)
	var line []byte
	return func() ([]byte, error) {
		for {
			line = line[:0]
			for {
				part, err := b.ReadSlice('\n')
				if line = append(line, part...); len(line) > limit {
					return nil, newProblem(TooLarge, true, nil, "it sent a message of more than %d bytes", limit)
				}
				if err == nil {
					break
				}
				if !errors.Is(err, bufio.ErrBufferFull) {
					return nil, ending(err)
				}
			}
			text := bytes.TrimSpace(line)
			if looksLikeMessage(text) {
				return text, nil
			}
			if len(text) > 0 {
				if err := noise(text); err != nil {
					return nil, err
				}
			}
		}
	}
}

// ending makes one of the ways in which a stream can end.
func ending(err error) error {
	if errors.Is(err, os.ErrClosed) {
		return io.EOF
	}
	return err
}

// environment is what a program gets: its own variables, and of paddock's the few
// that are inherited.
func environment(own map[string]string, environ []string) []string {
	all := map[string]string{}
	for _, pair := range environ {
		name, value, ok := strings.Cut(pair, "=")
		if ok && (slices.Contains(inherited[:4], name) || onWindows && slices.Contains(inherited, strings.ToUpper(name))) {
			all[name] = value
		}
	}
	maps.Copy(all, own)
	env := []string{} // not nil, which would be all of paddock's
	for name, value := range all {
		env = append(env, name+"="+value)
	}
	slices.Sort(env)
	return env
}

// find finds a program: a path as it is, a name in the PATH of env.
func find(name string, env []string) (string, error) {
	if strings.ContainsRune(name, '/') || strings.ContainsRune(name, filepath.Separator) {
		if !filepath.IsAbs(name) {
			return "", fmt.Errorf("%s is neither a name nor an absolute path", name)
		}
		return exec.LookPath(name)
	}
	for _, pair := range env {
		key, value, _ := strings.Cut(pair, "=")
		if key != "PATH" && (!onWindows || !strings.EqualFold(key, "PATH")) {
			continue
		}
		for _, dir := range filepath.SplitList(value) {
			if !filepath.IsAbs(dir) {
				continue
			}
			if path, err := exec.LookPath(filepath.Join(dir, name)); err == nil {
				return path, nil
			}
		}
	}
	return "", exec.ErrNotFound
}
