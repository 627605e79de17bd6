package wasm

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"runtime"
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

// startProcess starts a worker of an engine for the owner whose folder dir is; shared is
// the folder that it may read besides, or empty.
func startProcess(ctx context.Context, e *engine, config Config, dir, shared string) (*process, error) {
	cmd, err := e.command()
	if err != nil {
		return nil, err
	}
	if config.Inherit != nil {
		cmd.ExtraFiles = []*os.File{config.Inherit}
	}
	stream, started, err := connect(cmd)
	if err != nil {
		return nil, err
	}
	p := &process{cmd: cmd, ended: make(chan struct{})}
	err = p.start()
	started()
	if err != nil {
		stream.Close()
		return nil, fmt.Errorf("starting the worker: %w", err)
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), startTime)
	defer cancel()
	p.client, p.ready, err = wire.NewClient(ctx, stream, worker.Setup{
		Owner: dir, Shared: shared, Cache: config.CacheDir, UID: config.UID, GID: config.GID, Parent: os.Getpid(),
	})
	if err != nil {
		p.reap()
		return nil, fmt.Errorf("the worker is not ready: %w", err)
	}
	return p, nil
}

// start starts the process and waits for its end in the background. Both are one
// thread's, which nobody else has meanwhile: on Linux a worker is killed when the
// thread that started it ends (confine.Policy.Parent), and threads of Go end when
// a goroutine that has locked one does.
func (p *process) start() error {
	begun := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := p.cmd.Start()
		begun <- err
		if err == nil {
			// How it ended is seen by whoever waits for an answer.
			_ = p.cmd.Wait()
			close(p.ended)
		}
	}()
	return <-begun
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
