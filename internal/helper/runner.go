package helper

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"sync"
	"time"

	"paddock/internal/fault"
	"paddock/internal/share"
)

// How many helpers run at once: an owner's, and all. Who asks for more waits, the
// longest waiting first.
const ownerHelpers = 2

func allHelpers() int64 { return int64(max(4, runtime.NumCPU())) }

// nobody is whom a helper becomes where paddock runs as root and the helper reads no
// folder.
const nobody = 65534

// killDelay is how long a killed helper's pipes may stay open.
const killDelay = 5 * time.Second

// Runner starts helpers. Its methods may be called by several goroutines.
type Runner struct {
	program    string
	places     *share.Pool
	keptPlaces *share.Pool // of jobs that are kept: they do not wait for long ones

	ending sync.WaitGroup // what ends kept processes

	mu     sync.Mutex // guards what follows
	idle   []*keptProcess
	closed bool
}

// NewRunner makes a runner whose helpers are processes of a program whose main function
// calls [Main] where it is [Requested].
func NewRunner(program string) *Runner {
	return &Runner{program: program, places: share.New(allHelpers(), ownerHelpers), keptPlaces: share.New(allHelpers(), ownerHelpers)}
}

// Call is one request for a job.
type Call struct {
	// Owner is for whom the work is done; the calls of one wait for each other.
	Owner string
	// Readable are the folders below which the job may read files; with any, the process
	// keeps paddock's own user.
	Readable []string
	// In is the job's input.
	In io.Reader
}

// Run does a job in a process of its own and gives its result. The error is the job's
// fault, that of ctx, or a fault of kind Exhausted or Unsupported where the process did
// not come to its end: it had too little memory or time, or crashed. A nil Runner runs
// the job in this process, for tests of the job.
func (r *Runner) Run(ctx context.Context, job Job, call Call) ([]byte, error) {
	job = job.withDefaults()
	out := &bounded{most: job.MaxOutput}
	if r == nil {
		if err := job.Run(ctx, call.In, out); err != nil {
			return nil, err
		}
		return out.kept.Bytes(), nil
	}
	if job.Keep > 0 {
		return r.runKept(ctx, job, call)
	}
	leave, err := r.places.Take(ctx, call.Owner, 1)
	if err != nil {
		return nil, err
	}
	defer leave()
	limited, cancel := context.WithTimeout(ctx, job.Time)
	defer cancel()
	out.ended = cancel // a process whose output is not read waits
	header, err := json.Marshal(setupOf(call))
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(limited, r.program, role, job.Name)
	errs := &bounded{most: 64 << 10}
	cmd.Env, cmd.WaitDelay = environment(), killDelay
	cmd.Stdin = io.MultiReader(bytes.NewReader(append(header, '\n')), call.In)
	cmd.Stdout, cmd.Stderr = out, &beginning{errs}
	err = run(cmd)
	switch {
	case ctx.Err() != nil:
		return nil, context.Cause(ctx)
	case err != nil:
		return nil, failure(job, err, errors.Is(limited.Err(), context.DeadlineExceeded), out.full, errs.kept.Bytes())
	}
	return out.kept.Bytes(), nil
}

func setupOf(call Call) setup {
	s := setup{Readable: call.Readable, Parent: os.Getpid()}
	if len(call.Readable) == 0 && os.Getuid() == 0 {
		s.UID, s.GID = nobody, nobody
	}
	return s
}

// run starts the process and waits for it, both on one thread: on Linux a helper is
// killed when the thread that started it ends (confine.Policy.Parent).
func run(cmd *exec.Cmd) error {
	ended := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		ended <- cmd.Run()
	}()
	return <-ended
}

// ended is the cause of a fault where the process did not come to its end by itself.
type ended struct {
	error
	late bool // it took longer than its job's Time
}

func (e ended) Unwrap() error { return e.error }

// Ended tells of an error of [Runner.Run] whether the process did not come to its end: it
// crashed, or had too little memory, time or room for its result.
func Ended(err error) bool {
	var e ended
	return errors.As(err, &e)
}

// TimedOut reports whether an error of [Runner.Run] is that the process took longer than its
// job's Time. Such an error is one of those that [Ended] tells of.
func TimedOut(err error) bool {
	var e ended
	return errors.As(err, &e) && e.late
}

// failure says why a helper did not come to its end.
func failure(job Job, err error, late, tooMuch bool, said []byte) error {
	var exit *exec.ExitError
	code := -1
	if errors.As(err, &exit) {
		code = exit.ExitCode()
	}
	cause := ended{fmt.Errorf("the helper for %s: %w: %s", job.Name, err, said), late}
	if code == exitFault {
		if f := faultOf(said); f != nil {
			return f
		}
	}
	switch {
	case late:
		return fault.New(fault.Exhausted, "%s took longer than %v", job.Doing, job.Time).WithHint("do it with less at once").WithCause(cause)
	case tooMuch:
		return fault.New(fault.Exhausted, "%s gave more than %d MiB", job.Doing, job.MaxOutput>>20).WithHint("do it with less at once").WithCause(cause)
	case code == exitFailed:
		return failed(job, cause.error)
	}
	return fault.New(fault.Unsupported, "%s needed more memory than %d MiB, or crashed", job.Doing, job.Memory>>20).
		WithHint("the input may be too large, or made to do harm").WithCause(cause)
}

// environment is what Windows and macOS need to start a program; nothing of the user's.
func environment() []string {
	env := []string{"GOTRACEBACK=none"}
	for _, name := range []string{"SYSTEMROOT", "TMPDIR", "TEMP", "TMP"} {
		if value, ok := os.LookupEnv(name); ok {
			env = append(env, name+"="+value)
		}
	}
	return env
}

// bounded keeps what is written, up to a number of bytes; more is an error. The buffer
// is not embedded: its ReadFrom would go past the bound.
type bounded struct {
	kept  bytes.Buffer
	most  int64
	full  bool
	ended func() // called when it is full; nil: nothing is
}

func (b *bounded) Write(p []byte) (int, error) {
	if int64(b.kept.Len()+len(p)) > b.most {
		b.full = true
		if b.ended != nil {
			b.ended()
		}
		return 0, errors.New("helper: too much output")
	}
	return b.kept.Write(p)
}

// beginning takes all that is written and keeps the beginning.
type beginning struct{ kept *bounded }

func (b *beginning) Write(p []byte) (int, error) {
	_, _ = b.kept.Write(p[:min(int64(len(p)), b.kept.most-int64(b.kept.kept.Len()))])
	return len(p), nil
}
