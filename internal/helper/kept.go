package helper

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"time"

	"paddock/internal/fault"
)

// keptProcess is a helper that does one call after the other ([Job.Keep]), all of them of
// one owner. A call is its length (u32, little-endian) and its input; the answer is an
// exit code of one byte, one byte that is 1 where the process ends after it, a length, and
// the result, or what a process that is not kept says on standard error.
type keptProcess struct {
	key     string // the job and the owner
	in, out *os.File
	said    *bounded // what it wrote to standard error
	process *os.Process
	ended   chan struct{} // closed when it has; then err is how
	err     error
	expiry  *time.Timer // set while it waits for a call
}

// answerHeader is the length of what stands before an answer.
const answerHeader = 6

// errTooLong is for an answer that is longer than it may be.
var errTooLong = errors.New("the result is too long")

// runKept has a kept process do the job; see [Runner.Run].
func (r *Runner) runKept(ctx context.Context, job Job, call Call) ([]byte, error) {
	if len(call.Readable) > 0 {
		return nil, fmt.Errorf("the job %s is kept, so that it reads no folders", job.Name)
	}
	in, err := io.ReadAll(call.In)
	if err != nil {
		return nil, err
	}
	leave, err := r.keptPlaces.Take(ctx, call.Owner, 1)
	if err != nil {
		return nil, err
	}
	defer leave()
	limited, cancel := context.WithTimeout(ctx, job.Time)
	defer cancel()
	p := r.takeKept(keyOf(job, call))
	if p == nil {
		if p, err = r.startKept(job, call); err != nil {
			return nil, failure(job, err, false, false, nil)
		}
	}
	stop := context.AfterFunc(limited, p.kill)
	code, last, body, err := p.exchange(in, job.MaxOutput)
	inTime := stop() // it was not killed
	if err != nil {
		p.kill()
		<-p.ended
		p.close()
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		if p.err == nil { // it ended by itself, without an answer
			p.err = err
		}
		return nil, failure(job, p.err, errors.Is(limited.Err(), context.DeadlineExceeded), errors.Is(err, errTooLong), p.said.kept.Bytes())
	}
	if !inTime || last || !r.keep(p, job.Keep) {
		p.end()
	}
	switch code {
	case exitDone:
		return body, nil
	case exitFault:
		if f := faultOf(body); f != nil {
			return nil, f
		}
	}
	return nil, failed(job, fmt.Errorf("the helper for %s: %s", job.Name, body))
}

func keyOf(job Job, call Call) string { return job.Name + "\x00" + call.Owner }

// takeKept gives a process that waits for such a call; nil: none does.
func (r *Runner) takeKept(key string) *keptProcess {
	r.mu.Lock()
	defer r.mu.Unlock()
	for k := len(r.idle) - 1; k >= 0; k-- { // the latest is the likeliest to be in the caches
		p := r.idle[k]
		if p.key != key {
			continue
		}
		r.idle = slices.Delete(r.idle, k, k+1)
		p.expiry.Stop()
		if !p.hasEnded() {
			return p
		}
		p.close()
	}
	return nil
}

// keep has a process wait for its owner's next call, for as long as that; it is false
// after Close. Where more wait than there may be helpers, the one that waits longest ends.
func (r *Runner) keep(p *keptProcess, atMost time.Duration) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return false
	}
	p.expiry = time.AfterFunc(atMost, func() { r.expire(p) })
	r.idle = append(r.idle, p)
	if int64(len(r.idle)) > allHelpers() {
		r.idle[0].expiry.Stop()
		r.ending.Go(r.idle[0].end)
		r.idle = slices.Delete(r.idle, 0, 1)
	}
	return true
}

// expire ends a process that still waits.
func (r *Runner) expire(p *keptProcess) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if k := slices.Index(r.idle, p); k >= 0 {
		r.idle = slices.Delete(r.idle, k, k+1)
		r.ending.Go(p.end)
	}
}

// Close ends the processes that wait for calls, and waits for that; one that has a call
// ends with it. Close works twice, and on a nil Runner.
func (r *Runner) Close() error {
	if r == nil {
		return nil
	}
	r.mu.Lock()
	r.closed = true
	for _, p := range r.idle {
		p.expiry.Stop()
		r.ending.Go(p.end)
	}
	r.idle = nil
	r.mu.Unlock()
	r.ending.Wait()
	return nil
}

// startKept starts a process for a call, and for later ones.
func (r *Runner) startKept(job Job, call Call) (*keptProcess, error) {
	header, err := json.Marshal(setupOf(call))
	if err != nil {
		return nil, err
	}
	theirIn, in, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	out, theirOut, err := os.Pipe()
	if err != nil {
		return nil, errors.Join(err, theirIn.Close(), in.Close())
	}
	p := &keptProcess{key: keyOf(job, call), in: in, out: out, said: &bounded{most: 64 << 10}, ended: make(chan struct{})}
	cmd := exec.CommandContext(context.Background(), r.program, role, job.Name) // see end
	cmd.Env, cmd.WaitDelay = environment(), killDelay
	cmd.Stdin, cmd.Stdout, cmd.Stderr = theirIn, theirOut, &beginning{p.said}
	started := make(chan error)
	go func() { // until the process has ended, which is waited for; see run
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		theirIn.Close()
		theirOut.Close()
		p.process = cmd.Process
		started <- err
		if err == nil {
			p.err = cmd.Wait()
			close(p.ended)
		}
	}()
	if err := <-started; err != nil {
		p.close()
		return nil, err
	}
	if _, err := in.Write(append(header, '\n')); err != nil {
		p.end()
		return nil, err
	}
	return p, nil
}

// exchange sends a call and reads its answer, whose body has so many bytes at most.
func (p *keptProcess) exchange(in []byte, most int64) (code byte, last bool, body []byte, err error) {
	if _, err = p.in.Write(binary.LittleEndian.AppendUint32(nil, uint32(len(in)))); err == nil {
		_, err = p.in.Write(in)
	}
	if err != nil {
		return 0, false, nil, err
	}
	var header [answerHeader]byte
	if _, err = io.ReadFull(p.out, header[:]); err != nil {
		return 0, false, nil, err
	}
	size := int64(binary.LittleEndian.Uint32(header[2:]))
	if size > most {
		return 0, false, nil, errTooLong
	}
	body = make([]byte, size)
	_, err = io.ReadFull(p.out, body)
	return header[0], header[1] != 0, body, err
}

func (p *keptProcess) kill() { _ = p.process.Kill() } // it may have ended

func (p *keptProcess) hasEnded() bool {
	select {
	case <-p.ended:
		return true
	default:
		return false
	}
}

// close closes this end of the pipes, at which the process ends.
func (p *keptProcess) close() {
	p.in.Close()
	p.out.Close()
}

// end ends the process and waits for it.
func (p *keptProcess) end() {
	p.close()
	select {
	case <-p.ended:
	case <-time.After(killDelay):
		p.kill()
		<-p.ended
	}
}

// faultOf reads a fault that a job gave; nil: it is none.
func faultOf(text []byte) *fault.Error {
	var p fault.Problem
	if json.Unmarshal(text, &p) != nil {
		return nil
	}
	f := fault.New(p.Code, "%s", p.Message).WithHint("%s", p.Hint)
	f.RetryAfter = time.Duration(p.RetryAfter) * time.Second
	return f
}

// failed is the fault of a job that failed, for a cause that only the log tells.
func failed(job Job, cause error) error {
	return fault.New(fault.Internal, "%s did not work", job.Doing).WithHint("the server's log says more").WithCause(cause)
}

// retained is how much memory a process may go on with, in bytes: it waits without doing
// anything.
const retained = 96 << 20

// serveCalls does one call after the other, until the other end closes.
func serveCalls(job Job, in io.Reader, out io.Writer) error {
	for {
		var header [4]byte
		if _, err := io.ReadFull(in, header[:]); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return fmt.Errorf("reading a call: %w", err)
		}
		input := io.LimitReader(in, int64(binary.LittleEndian.Uint32(header[:])))
		var body bytes.Buffer
		done := make(chan struct{})
		go watchMemory(uint64(job.Memory), done)
		code, said := codeOf(job.Run(context.Background(), input, &body))
		close(done)
		if code != exitDone {
			body = *bytes.NewBuffer(said)
		}
		if _, err := io.Copy(io.Discard, input); err != nil {
			return fmt.Errorf("reading a call: %w", err)
		}
		answer := []byte{byte(code), 0}
		if memory() > retained {
			answer[1] = 1
		}
		answer = binary.LittleEndian.AppendUint32(answer, uint32(body.Len()))
		if _, err := out.Write(append(answer, body.Bytes()...)); err != nil {
			return fmt.Errorf("writing an answer: %w", err)
		}
		if answer[1] != 0 {
			return nil
		}
	}
}
