package wasm

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"sync"
	"time"

	"paddock/internal/sandbox/wasm/worker"
	"paddock/internal/sandbox/wire"
)

// startTime bounds a worker's start: a tenth of a second as a rule, but the
// machine may be loaded.
const startTime = 30 * time.Second

// exitTime is how long a worker may take to end once its connection is gone.
const exitTime = 2 * time.Second

// process is one worker.
type process struct {
	client *wire.Client
	ready  wire.Ready
	cmd    *exec.Cmd
	ended  chan struct{} // closed when the process has been waited for
	once   sync.Once
}

// command is this binary in the worker's role, with nothing of our
// environment.
func command(log *slog.Logger, args ...string) (*exec.Cmd, error) {
	self, err := executable()
	if err != nil {
		return nil, fmt.Errorf("finding paddock's own binary: %w", err)
	}
	cmd := exec.Command(self)
	cmd.Args = append([]string{worker.Role}, args...)
	cmd.Env = []string{}
	cmd.Dir = "/"
	cmd.Stderr = &logWriter{log: log}
	cmd.WaitDelay = exitTime
	return cmd, nil
}

func startProcess(ctx context.Context, config Config, dir string) (*process, error) {
	cmd, err := command(config.Log)
	if err != nil {
		return nil, err
	}
	stream, started, err := connect(cmd)
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		started()
		stream.Close()
		return nil, fmt.Errorf("starting the worker: %w", err)
	}
	started()
	p := &process{cmd: cmd, ended: make(chan struct{})}
	go func() {
		// How it ended is seen by whoever waits for an answer.
		_ = cmd.Wait()
		close(p.ended)
	}()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), startTime)
	defer cancel()
	p.client, p.ready, err = wire.NewClient(ctx, stream, worker.Setup{
		Owner: dir, Cache: config.CacheDir, UID: config.UID, GID: config.GID,
	})
	if err != nil {
		p.reap()
		return nil, fmt.Errorf("the worker is not ready: %w", err)
	}
	return p, nil
}

// close hangs up and waits until the process is gone.
func (p *process) close() {
	p.client.Close()
	p.reap()
}

func (p *process) reap() {
	p.once.Do(func() {
		overdue := time.AfterFunc(exitTime, func() { _ = p.cmd.Process.Kill() })
		defer overdue.Stop()
		<-p.ended
	})
	<-p.ended
}

// prepareInChild has the guests compiled and captured by another process: it
// takes seconds and hundreds of megabytes, which this one need not keep.
func prepareInChild(ctx context.Context, config Config) error {
	cmd, err := command(config.Log, "prepare", config.CacheDir)
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("starting the preparation: %w", err)
	}
	stop := context.AfterFunc(ctx, func() { _ = cmd.Process.Kill() })
	defer stop()
	if err := cmd.Wait(); err != nil {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		return fmt.Errorf("the preparation: %w", err)
	}
	return nil
}

// logWriter logs each line of a worker's standard error.
type logWriter struct {
	log  *slog.Logger
	rest []byte
}

// maxLine bounds a line in the log: a worker that has been taken over may
// write anything.
const maxLine = 4 << 10

func (w *logWriter) Write(p []byte) (int, error) {
	for _, c := range p {
		if c != '\n' && len(w.rest) < maxLine {
			w.rest = append(w.rest, c)
			continue
		}
		w.log.Warn("worker", "line", string(w.rest))
		w.rest = w.rest[:0]
	}
	return len(p), nil
}

// executable is the path of the running binary, also when it has been
// replaced or removed since.
func executable() (string, error) {
	if _, err := os.Stat("/proc/self/exe"); err == nil {
		return "/proc/self/exe", nil
	}
	return os.Executable()
}
