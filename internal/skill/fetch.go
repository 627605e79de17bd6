package skill

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"paddock/internal/fault"
	"paddock/internal/helper"
	"paddock/internal/iolimit"
)

// Limits bound what is fetched. A zero field is the default that its comment names.
type Limits struct {
	Bytes    int64         // of a skill's files together; 16 MiB
	Files    int           // of a skill; 1,000
	Download int64         // of an archive, or of a repository's pack; 64 MiB
	Unpacked int64         // of all that a repository's pack holds; 256 MiB
	Entries  int           // of an archive, or objects of a pack; 100,000
	Time     time.Duration // to fetch one; 60 s
	Quiet    time.Duration // in which nothing comes before it is given up; 15 s
}

func (l Limits) withDefaults() Limits {
	return Limits{
		Bytes:    cmp.Or(l.Bytes, 16<<20),
		Files:    cmp.Or(l.Files, 1000),
		Download: cmp.Or(l.Download, 64<<20),
		Unpacked: cmp.Or(l.Unpacked, 256<<20),
		Entries:  cmp.Or(l.Entries, 100_000),
		Time:     cmp.Or(l.Time, time.Minute),
		Quiet:    cmp.Or(l.Quiet, 15*time.Second),
	}
}

// GitHubConfig is how GitHub is reached.
type GitHubConfig struct {
	// API is the root of its API, without a final slash; empty: GitHub's own.
	API string
	// Token goes to the API's origin, and nowhere else; empty: none.
	Token string
}

const gitHubAPI = "https://api.github.com"

// fetcher gets skills from where they are.
type fetcher struct {
	transport http.RoundTripper // nil: there is no network
	github    GitHubConfig
	limits    Limits
	helpers   *helper.Runner
	owner     string // for whom
}

// fetched is a folder that came from somewhere.
type fetched struct {
	Folder
	name   string // what it was called there
	given  bool   // and whether somebody chose that
	commit string // what git says it is; empty: it does not come from there
}

// fetch gets a skill's folder. Nothing of it is kept on disk.
func (f *fetcher) fetch(ctx context.Context, s Source) (fetched, error) {
	ctx, cancel := context.WithTimeout(ctx, f.limits.Time)
	defer cancel()
	ctx, giveUp := context.WithCancelCause(ctx)
	defer giveUp(nil)
	own := *f
	f = &own
	if f.transport != nil {
		f.transport = patient{f.transport, f.limits.Quiet, giveUp}
	}
	got := fetched{}
	got.name, got.given = s.folderName()
	var err error
	switch s.Kind {
	case GitHub:
		err = f.gitHub(ctx, s, &got)
	case Git:
		err = f.git(ctx, s, &got)
	case Archive:
		err = f.archive(ctx, s, &got)
	case Page:
		err = f.page(ctx, s, &got)
	case Local:
		err = f.local(ctx, s, &got)
	default:
		err = fault.New(fault.Invalid, "nothing is fetched from a source of the kind %.20q", s.Kind)
	}
	var quiet *fault.Error
	switch cause := context.Cause(ctx); {
	case err == nil || cause == nil:
	case errors.As(cause, &quiet):
		err = quiet
	case errors.Is(cause, context.DeadlineExceeded):
		err = fault.New(fault.Unavailable, "fetching the skill took longer than %v", f.limits.Time).WithHint("try again").WithCause(err)
	}
	return got, err
}

// patient gives a fetch up when nothing comes for so long.
type patient struct {
	http.RoundTripper
	quiet  time.Duration
	giveUp context.CancelCauseFunc
}

// waits is called when something is waited for, and what it gives when that is there.
func (p patient) waits(host string) (came func() bool) {
	return time.AfterFunc(p.quiet, func() {
		p.giveUp(fault.New(fault.Unavailable, "%s has sent nothing for %v", host, p.quiet).WithHint("check that it is the right address; try again later"))
	}).Stop
}

func (p patient) RoundTrip(r *http.Request) (*http.Response, error) {
	host := r.URL.Hostname()
	defer p.waits(host)()
	resp, err := p.RoundTripper.RoundTrip(r)
	if err == nil {
		resp.Body = awaited{resp.Body, p, host}
	}
	return resp, err
}

// awaited is the body of an answer that is not waited for longer than that.
type awaited struct {
	io.ReadCloser
	p    patient
	host string
}

func (a awaited) Read(p []byte) (int, error) {
	defer a.p.waits(a.host)()
	return a.ReadCloser.Read(p)
}

// get asks for a URL, and gives the body, which ends with a fault after most bytes.
func (f *fetcher) get(ctx context.Context, at string, most int64, header http.Header) (io.ReadCloser, error) {
	if f.transport == nil {
		return nil, fault.New(fault.Denied, "nothing may be fetched here").WithHint("the operator can allow hosts for skills")
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, at, nil)
	if err != nil {
		return nil, errSource(at, "it is not a URL").WithCause(err)
	}
	for key, values := range header {
		r.Header[key] = values
	}
	r.Header.Set("User-Agent", "paddock")
	resp, err := (&http.Client{Transport: f.transport, CheckRedirect: sameOrigin}).Do(r)
	if err != nil {
		return nil, fmt.Errorf("fetching a skill: %w", err)
	}
	if resp.StatusCode != http.StatusOK {
		defer resp.Body.Close()
		return nil, errStatus(r.URL.Hostname(), resp)
	}
	return boundedBody(resp.Body, &most), nil
}

// errStatus makes a fault of an answer that is not 200.
func errStatus(host string, resp *http.Response) error {
	left := resp.Header.Get("X-Ratelimit-Remaining")
	switch code := resp.StatusCode; {
	case code == http.StatusTooManyRequests, code == http.StatusForbidden && left == "0":
		return fault.New(fault.Unavailable, "%s wants no more requests for now", host).WithHint("try again later, or have a token put into the configuration")
	case code == http.StatusNotFound, code == http.StatusGone:
		return fault.New(fault.NotFound, "%s has nothing there", host).WithHint("check the name and the ref; what is not public needs a token in the server's configuration")
	case code == http.StatusUnauthorized, code == http.StatusForbidden:
		return fault.New(fault.Denied, "%s requires authentication", host).WithHint("what is not public needs a token in the server's configuration")
	default:
		return fault.New(fault.Unavailable, "%s answered with the status %d", host, code).WithHint("try again later")
	}
}

// body is that of an answer. What it and others that share left give is bounded together.
type body struct {
	io.Closer
	in   *iolimit.Reader
	left *int64
}

// boundedBody makes a body of what an answer holds, which ends with a fault after left bytes.
func boundedBody(of io.ReadCloser, left *int64) body {
	return body{of, &iolimit.Reader{R: of, Over: errTooLarge()}, left}
}

func (b body) Read(p []byte) (int, error) {
	b.in.Left = *b.left
	n, err := b.in.Read(p)
	*b.left = b.in.Left
	if err != nil && err != io.EOF && err != b.in.Over && !errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, context.Canceled) {
		err = fault.New(fault.Unavailable, "the connection broke off while the skill was fetched").WithHint("try again").WithCause(err)
	}
	return n, err
}

func errTooLarge() error {
	return fault.New(fault.Exhausted, "the skill, or what it comes in, is too large").WithHint("name its folder, or pack less")
}

func (f *fetcher) page(ctx context.Context, s Source, got *fetched) error {
	body, err := f.get(ctx, s.URL, maxMain, nil)
	if err != nil {
		return err
	}
	defer body.Close()
	data, err := io.ReadAll(body)
	if err != nil {
		return fmt.Errorf("fetching a skill: %w", err)
	}
	got.Folder, err = newFolder([]File{{Path: MainFile, Data: data}})
	return err
}

// gitHub fetches a repository's archive, and once more where the skill lies in another
// folder of the name that was given: only what is below one folder is unpacked.
func (f *fetcher) gitHub(ctx context.Context, s Source, got *fetched) error {
	u := &unpacker{limits: f.limits, within: s.Path, top: true}
	err := f.gitHubFolder(ctx, s, u)
	if err != nil {
		return err
	}
	if at := deeper(u.elsewhere, s.Path); at != "" && !u.has(MainFile) {
		s.Path = at
		u = &unpacker{limits: f.limits, within: at, top: true}
		if err := f.gitHubFolder(ctx, s, u); err != nil {
			return err
		}
	}
	got.commit = u.commit
	return u.choose(s, got)
}

// gitHubFolder unpacks what the unpacker wants of a repository's archive, in which all
// lies below one folder, called after the commit.
func (f *fetcher) gitHubFolder(ctx context.Context, s Source, u *unpacker) error {
	api := strings.TrimSuffix(f.github.API, "/")
	if api == "" {
		api = gitHubAPI
	}
	at := api + "/repos/" + s.Repo + "/tarball"
	if s.Ref != "" {
		at += "/" + (&url.URL{Path: s.Ref}).EscapedPath()
	}
	header := http.Header{"Accept": {"application/vnd.github+json"}}
	if f.github.Token != "" {
		header.Set("Authorization", "Bearer "+f.github.Token)
	}
	body, err := f.get(ctx, at, f.limits.Download, header)
	if err != nil {
		return err
	}
	defer body.Close()
	return u.read(body)
}

func (f *fetcher) archive(ctx context.Context, s Source, got *fetched) error {
	body, err := f.get(ctx, s.URL, f.limits.Download, nil)
	if err != nil {
		return err
	}
	defer body.Close()
	u := &unpacker{limits: f.limits}
	if err := u.read(body); err != nil {
		return err
	}
	got.commit = u.commit
	return u.choose(s, got)
}

// localArchive reads a zip or tar.gz of this host.
func (f *fetcher) localArchive(s Source, name string, got *fetched) error {
	file, err := os.Open(name)
	if err != nil {
		return fault.New(fault.NotFound, "the file %.100q cannot be read", s.URL).WithHint("check who may read it").WithCause(err)
	}
	defer file.Close()
	u := &unpacker{limits: f.limits}
	if err := u.read(io.LimitReader(file, f.limits.Download)); err != nil {
		return err
	}
	s.Kind = Archive // its folder is found as in those that are fetched
	return u.choose(s, got)
}

// local reads a folder of this host, or an archive. No link in a folder is followed.
func (f *fetcher) local(ctx context.Context, s Source, got *fetched) error {
	dir, err := filepath.Abs(s.URL)
	if err != nil {
		return errSource(s.Text, "it is not a folder").WithCause(err)
	}
	if info, err := os.Stat(dir); err == nil && info.Mode().IsRegular() {
		if info.Size() > f.limits.Download {
			return errTooLarge()
		}
		return f.localArchive(s, dir, got)
	}
	if s.Path == "" {
		got.name, got.given = filepath.Base(dir), true
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return fault.New(fault.NotFound, "there is no folder %.100q that can be read", s.URL).
			WithHint("check the path; other sources are written as github:owner/repo/path, git+https://… or https://…").WithCause(err)
	}
	defer root.Close()
	u := &unpacker{limits: f.limits}
	err = fs.WalkDir(root.FS(), ".", func(name string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case d.IsDir() && d.Name() == ".git":
			return fs.SkipDir
		case d.Name() == ".git":
			return nil // of a submodule, or of another working tree
		case d.IsDir() && strings.Count(name, "/") >= maxDepth: // each step down would look at all folders above it
			return fault.New(fault.Invalid, "the skill's folders are nested more than %d deep", maxDepth).WithHint("put its files higher up")
		case d.IsDir():
			return nil
		case !d.Type().IsRegular():
			return u.oddly(name)
		}
		file, err := root.Open(name)
		if err != nil {
			return err
		}
		defer file.Close()
		info, err := file.Stat()
		if err != nil {
			return err
		}
		return u.entry(name, info.Mode(), file)
	})
	if err != nil {
		return fmt.Errorf("reading a skill's folder: %w", err)
	}
	return u.cut("", got)
}
