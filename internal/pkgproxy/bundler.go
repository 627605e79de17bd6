package pkgproxy

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

// maxAnswer bounds what the job gives: the packs, as base64.
const maxAnswer = 2*maxModules + 1<<20

// Bundle is the job that makes packs of unpacked npm packages: a source that is nested
// deep enough makes a compiler run out of stack or memory.
var Bundle = helper.Job{
	Name: "bundle", Doing: "making modules of npm packages", Run: runBundle,
	Memory: 3 << 30, Time: 3 * time.Minute, MaxOutput: maxAnswer,
}

// bundlerRequest is the job's input: a folder, and the packages' folders in it.
type bundlerRequest struct {
	Dir     string   `json:"dir"`
	Folders []string `json:"folders"`
}

// bundlerAnswer is its result: a pack for each folder.
type bundlerAnswer struct {
	Packs [][]byte `json:"packs"`
}

func runBundle(ctx context.Context, in io.Reader, out io.Writer) error {
	var request bundlerRequest
	if err := json.NewDecoder(in).Decode(&request); err != nil {
		return fmt.Errorf("reading what to make modules of: %w", err)
	}
	root, err := os.OpenRoot(request.Dir)
	if err != nil {
		return err
	}
	defer root.Close()
	var answer bundlerAnswer
	for _, folder := range request.Folders {
		pack, err := makePack(ctx, root, folder)
		if err != nil {
			return err
		}
		answer.Packs = append(answer.Packs, pack)
	}
	return json.NewEncoder(out).Encode(answer)
}

// builds lets one compiler work at a time: it takes all processors.
var builds = make(chan struct{}, 1)

// enterBuilds waits for its turn.
func enterBuilds(ctx context.Context) (leave func(), err error) {
	select {
	case builds <- struct{}{}:
		return func() { <-builds }, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// runBundler makes packs of packages, in a helper's process, which may read their folder
// alone. It may run out of what it is given: then helper.Ended tells.
func (p *Packages) runBundler(ctx context.Context, dir string, folders []string) ([][]byte, error) {
	request, err := json.Marshal(bundlerRequest{dir, folders})
	if err != nil {
		return nil, err
	}
	text, err := p.config.Helpers.Run(ctx, Bundle, helper.Call{Owner: bundlesOwner, Readable: []string{dir}, In: bytes.NewReader(request)})
	if err != nil {
		return nil, err
	}
	var answer bundlerAnswer
	if err := json.Unmarshal(text, &answer); err != nil {
		return nil, err
	}
	if len(answer.Packs) != len(folders) {
		return nil, fmt.Errorf("%d packs of %d packages", len(answer.Packs), len(folders))
	}
	return answer.Packs, nil
}

// errUnbuildable is for a package of which no pack can be made.
func errUnbuildable(label string, err error) error {
	return fault.New(fault.Unsupported, "modules cannot be made of the npm package %s: what makes them did not come to its end", label).
		WithHint("it may be too large, or made to do harm; packages install in a session with isolation %q", isolationLinux).
		WithCause(fault.CauseOf(err))
}

// bundlesOwner has all bundles take their turns in places of their own.
const bundlesOwner = "bundles of npm packages"
