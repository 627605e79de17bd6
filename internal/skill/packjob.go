package skill

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"time"

	"github.com/go-git/go-git/v5/plumbing"

	"paddock/internal/helper"
	"paddock/internal/iolimit"
)

// Pack is the job that takes a skill out of a repository's pack. The library that reads
// packs keeps all that is in one in memory and was not made for what strangers send, so
// its memory, its time and its crashes are a helper's.
var Pack = helper.Job{
	Name: "skill-pack", Doing: "reading the repository", Run: readPack,
	// 64 MiB for the pack, 256 for what it holds, 96 for the library's cache, the skill in
	// three forms, and Go's own share.
	Memory: 896 << 20, MaxOutput: 32 << 20, Time: 30 * time.Second,
}

// packRequest is the first line of the job's input; the pack follows.
type packRequest struct {
	Want   string
	Source Source
	Limits Limits
}

// packResult is the job's result.
type packResult struct {
	Files        Folder
	Name, Commit string
	Given        bool
}

// fromPack has a helper take the skill out of a pack.
func (f *fetcher) fromPack(ctx context.Context, pack io.Reader, want plumbing.Hash, s Source, got *fetched) error {
	head, err := json.Marshal(packRequest{want.String(), s, f.limits})
	if err != nil {
		return fmt.Errorf("asking for a pack to be read: %w", err)
	}
	in := io.MultiReader(bytes.NewReader(append(head, '\n')), pack)
	data, err := f.helpers.Run(ctx, Pack, helper.Call{Owner: f.owner, In: in})
	if err != nil {
		return err
	}
	var res packResult
	if err := json.Unmarshal(data, &res); err != nil {
		return fmt.Errorf("reading what was in a pack: %w", err)
	}
	got.Folder, err = newFolder(res.Files)
	got.name, got.given, got.commit = cmp.Or(res.Name, got.name), res.Given || res.Name == "" && got.given, res.Commit
	return err
}

// readPack is the job.
func readPack(ctx context.Context, in io.Reader, out io.Writer) error {
	lines := bufio.NewReader(in)
	head, err := lines.ReadBytes('\n')
	if err != nil {
		return fmt.Errorf("reading what is wanted of a pack: %w", err)
	}
	var req packRequest
	if err := json.Unmarshal(head, &req); err != nil {
		return fmt.Errorf("reading what is wanted of a pack: %w", err)
	}
	pack, err := iolimit.ReadAll(lines, req.Limits.Download, errTooLarge())
	if err != nil {
		return err
	}
	var got fetched
	f := fetcher{limits: req.Limits}
	if err := f.unpackGit(ctx, bytes.NewReader(pack), plumbing.NewHash(req.Want), req.Source, &got); err != nil {
		return err
	}
	return json.NewEncoder(out).Encode(packResult{got.Folder, got.name, got.commit, got.given})
}
