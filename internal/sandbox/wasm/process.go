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

// startProcess starts a worker of an engine for the owner whose folder dir is.
func startProcess(ctx context.Context, e *engine, config Config, dir string) (*process, error) {
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
