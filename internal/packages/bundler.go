package packages

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime/debug"
	"time"

	"paddock/internal/fault"
)

// The bundler is a process of its own: a source that is nested deep enough makes it run
// out of stack, which ends a process of Go's whatever it does.

// bundlerRole is the one argument of that process.
const bundlerRole = "packages-bundler"

// Bounds of the process: it tries to stay within bundlerMemory, and ends where it has more
// than bundlerMost.
const (
	bundlerTime   = 3 * time.Minute
	bundlerMemory = 2 << 30
	bundlerMost   = 3 << 30
	bundlerStack  = 256 << 20
	maxAnswer     = 2*maxModules + 1<<20
)

// BundlerCommand is the command line of the process, of a program whose main function
// calls [Main] where it is [Requested].
func BundlerCommand(program string) []string { return []string{program, bundlerRole} }

// Requested tells whether a command line is the bundler's.
func Requested(args []string) bool { return len(args) == 2 && args[1] == bundlerRole }

// bundlerRequest is what the process is asked for, on its standard input.
type bundlerRequest struct {
	Dir   string   `json:"dir"`
	Names []string `json:"names"`
}

// bundlerAnswer is what it says, on its standard output.
type bundlerAnswer struct {
	Files   map[string][]byte `json:"files"`
	Notes   []string          `json:"notes"`
	Problem *fault.Problem    `json:"problem"`
}

// Main is the bundler's process. It gives the exit code.
func Main() int {
	debug.SetMaxStack(bundlerStack)
	debug.SetMemoryLimit(bundlerMemory)
	if err := boundMemory(bundlerMost); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	go watchMemory(bundlerMost) // until the process ends
	var in bundlerRequest
	var out bundlerAnswer
	if err := json.NewDecoder(os.Stdin).Decode(&in); err != nil {
		return 1
	}
	made, err := bundleFolder(in)
	if err != nil {
		problem := fault.ProblemOf(err)
		out.Problem = &problem
	} else {
		out.Files, out.Notes = made.files, made.notes
	}
	if err := json.NewEncoder(os.Stdout).Encode(out); err != nil {
		return 1
	}
	return 0
}

func bundleFolder(in bundlerRequest) (*bundled, error) {
	root, err := os.OpenRoot(in.Dir)
	if err != nil {
		return nil, err
	}
	defer root.Close()
	return bundleModules(context.Background(), in.Dir, root, in.Names)
}

// builds lets one bundler work at a time: it takes all processors.
var builds = make(chan struct{}, 1)

// runBundler makes modules of the packages in a folder, in a process of its own.
func (p *Packages) runBundler(ctx context.Context, dir string, names []string) (*bundled, error) {
	if len(p.config.Bundler) == 0 {
		return nil, fault.New(fault.Unsupported, "npm packages cannot be made into modules here").WithHint("they install in a session with isolation %q", isolationLinux)
	}
	select {
	case builds <- struct{}{}:
		defer func() { <-builds }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	request, err := json.Marshal(bundlerRequest{dir, names})
	if err != nil {
		return nil, err
	}
	limited, cancel := context.WithTimeout(ctx, bundlerTime)
	defer cancel()
	cmd := exec.CommandContext(limited, p.config.Bundler[0], p.config.Bundler[1:]...)
	cmd.Env, cmd.Dir, cmd.Stdin, cmd.WaitDelay = bundlerEnvironment(), dir, bytes.NewReader(request), 5*time.Second
	out, errs := &head{most: maxAnswer}, &head{most: 4 << 10}
	cmd.Stdout, cmd.Stderr = out, errs
	err = cmd.Run()
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	var answer bundlerAnswer
	if err == nil {
		err = json.Unmarshal(out.Bytes(), &answer)
	}
	if err != nil {
		return nil, fault.New(fault.Unsupported, "a module cannot be made of the packages: what makes them did not come to its end").
			WithHint("one of them may be too large, or made to do harm; packages install in a session with isolation %q", isolationLinux).
			WithCause(fmt.Errorf("the bundler's process: %w: %s", err, errs.Bytes()))
	}
	if f := answer.Problem; f != nil {
		return nil, fault.New(f.Code, "%s", f.Message).WithHint("%s", f.Hint)
	}
	return &bundled{files: answer.Files, notes: answer.Notes}, nil
}

// bundlerEnvironment is what Windows and macOS need to start a program; nothing of the
// user's.
func bundlerEnvironment() []string {
	env := []string{"GOTRACEBACK=none"}
	for _, name := range []string{"SYSTEMROOT", "TMPDIR", "TEMP", "TMP"} {
		if value, ok := os.LookupEnv(name); ok {
			env = append(env, name+"="+value)
		}
	}
	return env
}

// head keeps the beginning of what is written; more than that is an error.
type head struct {
	bytes.Buffer
	most int
}

// Write implements [io.Writer].
func (h *head) Write(b []byte) (int, error) {
	if h.Len()+len(b) > h.most {
		return 0, errors.New("packages: too much output")
	}
	return h.Buffer.Write(b)
}

var _ io.Writer = (*head)(nil)
