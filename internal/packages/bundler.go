package packages

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"time"

	"paddock/internal/fault"
	"paddock/internal/helper"
)

// maxAnswer bounds what the bundler gives: the modules, as base64, and their names.
const maxAnswer = 2*maxModules + 1<<20

// Bundle is the job that makes ES modules of a folder of npm packages: a source that is
// nested deep enough, or whose constants are made of each other, makes a bundler run out
// of stack or memory.
var Bundle = helper.Job{
	Name: "bundle", Doing: "making a module of the packages", Run: runBundle,
	Memory: 3 << 30, Time: 3 * time.Minute, MaxOutput: maxAnswer,
}

// bundlerRequest is the job's input.
type bundlerRequest struct {
	Dir   string   `json:"dir"`
	Names []string `json:"names"`
}

// bundlerAnswer is its result.
type bundlerAnswer struct {
	Files map[string][]byte `json:"files"`
	Notes []string          `json:"notes"`
}

func runBundle(ctx context.Context, in io.Reader, out io.Writer) error {
	var request bundlerRequest
	if err := json.NewDecoder(in).Decode(&request); err != nil {
		return fmt.Errorf("reading what to bundle: %w", err)
	}
	root, err := os.OpenRoot(request.Dir)
	if err != nil {
		return err
	}
	defer root.Close()
	made, err := bundleModules(ctx, request.Dir, root, request.Names)
	if err != nil {
		return err
	}
	return json.NewEncoder(out).Encode(bundlerAnswer{made.files, made.notes})
}

// builds lets one bundler work at a time: it takes all processors.
var builds = make(chan struct{}, 1)

// runBundler makes modules of the packages in a folder, in a helper's process, which may
// read that folder alone.
func (p *Packages) runBundler(ctx context.Context, dir string, names []string) (*bundled, error) {
	if p.config.Helpers == nil {
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
	text, err := p.config.Helpers.Run(ctx, Bundle, helper.Call{Owner: bundlesOwner, Readable: []string{dir}, In: bytes.NewReader(request)})
	var answer bundlerAnswer
	if err == nil {
		err = json.Unmarshal(text, &answer)
	}
	if helper.Ended(err) {
		return nil, fault.New(fault.Unsupported, "a module cannot be made of the packages: what makes them did not come to its end").
			WithHint("one of them may be too large, or made to do harm; packages install in a session with isolation %q", isolationLinux).
			WithCause(fault.CauseOf(err))
	}
	if err != nil {
		return nil, err
	}
	return &bundled{files: answer.Files, notes: answer.Notes}, nil
}

// bundlesOwner has all bundles take their turns in places of their own.
const bundlesOwner = "bundles of npm packages"
