package envd

import (
	"errors"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/creack/pty"
)

func itoa(n int) string { return strconv.Itoa(n) }

type selector struct {
	PID int     `json:"pid"`
	Tag *string `json:"tag"`
}

type ptySize struct {
	Size struct {
		Cols uint32 `json:"cols"`
		Rows uint32 `json:"rows"`
	} `json:"size"`
}

// mostSide bounds the rows and columns of a terminal.
const mostSide = 4096

func (p ptySize) rows() uint16 { return uint16(min(max(p.Size.Rows, 1), mostSide)) }
func (p ptySize) cols() uint16 { return uint16(min(max(p.Size.Cols, 1), mostSide)) }

type startRequest struct {
	Process processConfig `json:"process"`
	Pty     *ptySize      `json:"pty"`
	Tag     string        `json:"tag"`
	Stdin   *bool         `json:"stdin"`
}

type (
	processRequest struct {
		Process selector `json:"process"`
	}
	inputRequest struct {
		Process selector `json:"process"`
		Input   struct {
			Stdin []byte `json:"stdin"`
			Pty   []byte `json:"pty"`
		} `json:"input"`
	}
	signalRequest struct {
		Process selector `json:"process"`
		Signal  string   `json:"signal"`
	}
	updateRequest struct {
		Process selector `json:"process"`
		Pty     *ptySize `json:"pty"`
	}
	processInfo struct {
		Config processConfig `json:"config"`
		PID    int           `json:"pid"`
		Tag    string        `json:"tag,omitempty"`
	}
	processList struct {
		Processes []processInfo `json:"processes"`
	}
	nothing struct{}
)

func (s *Server) processMethods() map[string]http.Handler {
	return map[string]http.Handler{
		"Start": streaming(s.start), "Connect": streaming(s.connect), "List": unary(s.listProcesses), "SendInput": unary(s.sendInput),
		"CloseStdin": unary(s.closeStdin), "SendSignal": unary(s.sendSignal), "Update": unary(s.update),
	}
}

// start starts a process and sends what it prints until it has ended. When the client goes
// the process goes on; when the time is over for which the client waits, it is killed.
func (s *Server) start(r *http.Request, q *startRequest, to *stream) *connectError {
	u, refused := s.userOf(r)
	if refused != nil {
		return refused
	}
	p, outputs, refused := s.startProcess(u, q)
	if refused != nil {
		return refused
	}
	reader := p.attach() // before the first output
	s.jobs.Go(func() {
		if left := timeoutOf(r); left > 0 {
			defer time.AfterFunc(left, func() { _ = p.signal(syscall.SIGKILL) }).Stop() // it may have ended
		}
		p.run(outputs)
		s.processes.forget(p)
	})
	return p.follow(reader, to)
}

// startProcess starts a process, of whose output nothing has been read.
func (s *Server) startProcess(u account, q *startRequest) (*process, map[string]*os.File, *connectError) {
	cwd := u.resolve(q.Process.Cwd)
	if info, err := os.Stat(cwd); err != nil || !info.IsDir() {
		return nil, nil, failed(invalidArgument, "cwd '%s' does not exist", cwd)
	}
	env := s.environ(u, q.Process.Envs)
	path, err := findProgram(q.Process.Cmd, cwd, env)
	if err != nil {
		return nil, nil, failed(invalidArgument, "error starting process '%s': %v", q.Process.Cmd, err)
	}
	var e *ends
	if q.Pty != nil {
		e, err = atTerminal(*q.Pty)
	} else {
		e, err = plain(q.Stdin == nil || *q.Stdin)
	}
	if err != nil {
		return nil, nil, failed(internalError, "error starting process '%s': %v", q.Process.Cmd, err)
	}
	attr := &syscall.ProcAttr{Dir: cwd, Env: env, Files: e.files, Sys: &syscall.SysProcAttr{Setsid: true, Setctty: q.Pty != nil}}
	child, err := s.config.Start(path, append([]string{q.Process.Cmd}, q.Process.Args...), attr)
	e.close(err != nil)
	if err != nil {
		return nil, nil, failed(invalidArgument, "error starting process '%s': %v", q.Process.Cmd, err)
	}
	p := &process{
		config: q.Process, tag: q.Tag, child: child, stdin: e.stdin, master: e.master,
		killed: make(chan struct{}), readers: map[*reader]struct{}{}, over: make(chan struct{}),
	}
	s.processes.add(p)
	return p, e.outputs, nil
}

// findProgram finds a program in the PATH of an environment.
func findProgram(name, dir string, env []string) (string, error) {
	if strings.Contains(name, "/") {
		if !filepath.IsAbs(name) {
			name = filepath.Join(dir, name)
		}
		return exec.LookPath(name)
	}
	for _, pair := range env {
		folders, is := strings.CutPrefix(pair, "PATH=")
		if !is {
			continue
		}
		for folder := range strings.SplitSeq(folders, ":") {
			if !filepath.IsAbs(folder) {
				folder = filepath.Join(dir, folder)
			}
			if found, err := exec.LookPath(filepath.Join(folder, name)); err == nil {
				return found, nil
			}
		}
	}
	return "", errors.New("executable file not found in $PATH")
}

// follow sends a client what a process does until it has ended or the client has gone.
func (p *process) follow(r *reader, to *stream) *connectError {
	defer p.detach(r)
	wrap := func(e event) error { return to.send(map[string]any{"event": e}) }
	if wrap(event{"start": map[string]int{"pid": p.child.PID()}}) != nil {
		return nil
	}
	for {
		select {
		case e := <-r.events:
			if wrap(e) != nil {
				return nil
			}
		case <-to.ctx.Done():
			return to.left()
		case <-p.over:
			for len(r.events) > 0 { // all of it was published before
				if wrap(<-r.events) != nil {
					return nil
				}
			}
			_ = wrap(event{"end": p.ended()})
			return nil
		}
	}
}

func (s *Server) connect(_ *http.Request, q *processRequest, to *stream) *connectError {
	p, refused := s.processes.get(q.Process)
	if refused != nil {
		return refused
	}
	return p.follow(p.attach(), to)
}

func (s *Server) listProcesses(*http.Request, *nothing) (*processList, *connectError) {
	all := processList{Processes: []processInfo{}}
	for _, p := range s.processes.list() {
		all.Processes = append(all.Processes, processInfo{p.config, p.child.PID(), p.tag})
	}
	return &all, nil
}

func (s *Server) sendInput(_ *http.Request, q *inputRequest) (*nothing, *connectError) {
	p, refused := s.processes.living(q.Process)
	switch {
	case refused != nil:
		return nil, refused
	case q.Input.Pty != nil:
		if p.master == nil {
			return nil, failed(internalError, "error writing to tty: tty not assigned to process")
		}
		if err := s.typeAt(p, q.Input.Pty); err != nil {
			return nil, failed(internalError, "error writing to tty: %v", err)
		}
	default:
		if p.master != nil {
			return nil, failed(internalError, "error writing to stdin: the process has a terminal")
		}
		if err := p.write(q.Input.Stdin); err != nil {
			return nil, failed(internalError, "error writing to stdin: %v", err)
		}
	}
	return &nothing{}, nil
}

// typeAt types at a process's terminal.
func (s *Server) typeAt(p *process, data []byte) error {
	p.typing.Lock()
	defer p.typing.Unlock()
	if s.config.Type == nil {
		_, err := p.master.Write(data)
		return err
	}
	shown, err := s.config.Type(p.master, data)
	if len(shown) > 0 {
		p.publish(event{"data": map[string][]byte{"pty": shown}})
	}
	return err
}

func (s *Server) closeStdin(_ *http.Request, q *processRequest) (*nothing, *connectError) {
	p, refused := s.processes.living(q.Process)
	if refused != nil {
		return nil, refused
	}
	if p.master != nil {
		return nil, failed(failedPrecondition, "cannot close stdin of a process with a terminal: send it the end-of-file character instead")
	}
	p.closeInput()
	return &nothing{}, nil
}

var signals = map[string]syscall.Signal{"SIGNAL_SIGTERM": syscall.SIGTERM, "SIGNAL_SIGKILL": syscall.SIGKILL}

func (s *Server) sendSignal(_ *http.Request, q *signalRequest) (*nothing, *connectError) {
	sig, known := signals[q.Signal]
	p, refused := s.processes.living(q.Process)
	switch {
	case refused != nil:
		return nil, refused
	case !known:
		return nil, failed(invalidArgument, "invalid signal: %s", q.Signal)
	}
	switch err := p.signal(sig); {
	case errors.Is(err, os.ErrProcessDone):
		return nil, failed(notFound, "process with pid %d not found: it has ended", p.child.PID())
	case err != nil:
		return nil, failed(internalError, "error sending signal: %v", err)
	}
	if sig == syscall.SIGKILL {
		select {
		case <-p.over:
		case <-time.After(mostKilling):
		}
	}
	return &nothing{}, nil
}

// mostKilling is how long the answer to a SIGKILL waits for the end of the process, so that
// the next request does not find it.
const mostKilling = 2 * time.Second

func (s *Server) update(_ *http.Request, q *updateRequest) (*nothing, *connectError) {
	p, refused := s.processes.living(q.Process)
	if refused != nil || q.Pty == nil {
		return &nothing{}, refused
	}
	if p.master == nil {
		return nil, failed(internalError, "error resizing tty: tty not assigned to process")
	}
	if err := pty.Setsize(p.master, &pty.Winsize{Rows: q.Pty.rows(), Cols: q.Pty.cols()}); err != nil {
		return nil, failed(internalError, "error resizing tty: %v", err)
	}
	if s.config.Resized != nil {
		s.config.Resized(p.child.PID())
	}
	return &nothing{}, nil
}
