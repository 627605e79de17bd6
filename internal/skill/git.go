package skill

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"regexp"
	"strings"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/format/packfile"
	"github.com/go-git/go-git/v5/plumbing/protocol/packp"
	"github.com/go-git/go-git/v5/plumbing/protocol/packp/capability"
	"github.com/go-git/go-git/v5/plumbing/transport"
	githttp "github.com/go-git/go-git/v5/plumbing/transport/http"
	"github.com/go-git/go-git/v5/storage/memory"

	"paddock/internal/fault"
)

var commitName = regexp.MustCompile(`^[0-9a-f]{40}$`)

// git gets one commit without its past. There is no working tree, no
// configuration, no hook and no submodule: only objects, in memory.
func (f *fetcher) git(ctx context.Context, s Source, got *fetched) error {
	if f.transport == nil {
		_, err := f.get(ctx, s.URL, 0, nil) // says why not
		return err
	}
	at, err := transport.NewEndpoint(s.URL)
	if err != nil {
		return errSource(s.Text, "its URL is none").WithCause(err)
	}
	var left int64 // bytes that may come
	client := githttp.NewClientWithOptions(&http.Client{Transport: boundedTransport{f.transport, &left}, CheckRedirect: sameOrigin}, &githttp.ClientOptions{RedirectPolicy: githttp.FollowInitialRedirects})
	session, err := client.NewUploadPackSession(at, nil)
	if err != nil {
		return fmt.Errorf("fetching a skill by git: %w", err)
	}
	defer session.Close()
	left = min(maxRefs, f.limits.Download)
	refs, err := session.AdvertisedReferencesContext(ctx)
	if err != nil {
		return explainGit(err)
	}
	left = f.limits.Download
	want, err := wanted(refs, s)
	if err != nil {
		return err
	}
	request := packp.NewUploadPackRequestFromCapabilities(refs.Capabilities)
	for _, unwanted := range []capability.Capability{capability.Sideband, capability.Sideband64k, capability.ThinPack, capability.MultiACK, capability.MultiACKDetailed} {
		request.Capabilities.Delete(unwanted) // none of it is needed for a pack of one commit
	}
	request.Wants = []plumbing.Hash{want}
	if refs.Capabilities.Supports(capability.Shallow) {
		request.Depth = packp.DepthCommits(1)
		if err := request.Capabilities.Set(capability.Shallow); err != nil {
			return fmt.Errorf("fetching a skill by git: %w", err)
		}
	}
	response, err := session.UploadPack(ctx, request)
	if err != nil {
		return explainGit(err)
	}
	defer response.Close()
	pack, _, err := spoolFile(response)
	if err != nil {
		return explainGit(err)
	}
	defer pack.Close()
	if _, err := pack.Seek(0, io.SeekStart); err != nil {
		return fmt.Errorf("reading a pack: %w", err)
	}
	return f.fromPack(ctx, pack, want, s, got)
}

// maxRefs bounds what a repository says of its branches and tags, in bytes: it is kept as
// tables, which take eight times as much memory. Some 250,000 of them fit.
const maxRefs = 16 << 20

// boundedTransport lets so many bytes in, of all answers together.
type boundedTransport struct {
	http.RoundTripper
	left *int64
}

func (b boundedTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := b.RoundTripper.RoundTrip(r)
	if err == nil {
		resp.Body = boundedBody(resp.Body, b.left)
	}
	return resp, err
}

// explainGit makes a fault of what a repository said.
func explainGit(err error) error {
	var known *fault.Error
	switch {
	case errors.As(err, &known), errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return err
	case errors.Is(err, transport.ErrRepositoryNotFound), errors.Is(err, transport.ErrAuthenticationRequired), errors.Is(err, transport.ErrAuthorizationFailed):
		return fault.New(fault.NotFound, "there is no repository there that everybody may read").WithHint("check the URL").WithCause(err)
	case errors.Is(err, transport.ErrEmptyRemoteRepository):
		return fault.New(fault.NotFound, "the repository is empty").WithCause(err)
	}
	return fault.New(fault.Unavailable, "the repository did not answer as one of git does").WithHint("check the URL, and that the host serves git over HTTP").WithCause(err)
}

// wanted finds the commit, or the tag of one, that a source names.
func wanted(refs *packp.AdvRefs, s Source) (plumbing.Hash, error) {
	if s.Ref == "" {
		if refs.Head == nil {
			return plumbing.ZeroHash, fault.New(fault.NotFound, "the repository has no default branch").WithHint("name one, as @main")
		}
		return *refs.Head, nil
	}
	for _, name := range []string{"refs/tags/" + s.Ref, "refs/heads/" + s.Ref, s.Ref} {
		if hash, ok := refs.References[name]; ok {
			return hash, nil
		}
	}
	if commitName.MatchString(s.Ref) {
		return plumbing.NewHash(s.Ref), nil // whether it may be had the server says
	}
	return plumbing.ZeroHash, fault.New(fault.NotFound, "the repository has no branch and no tag %.100q", s.Ref).WithHint("a commit is named by all of its 40 digits")
}

// unpackGit reads a pack, and of the commit in it the skill's folder.
func (f *fetcher) unpackGit(ctx context.Context, pack io.ReadSeeker, want plumbing.Hash, s Source, got *fetched) error {
	_, err := pack.Seek(0, io.SeekStart)
	if err == nil {
		err = weigh(ctx, pack, f.limits)
	}
	if err == nil {
		_, err = pack.Seek(0, io.SeekStart)
	}
	if err != nil {
		return fmt.Errorf("reading a pack: %w", err)
	}
	objects := memory.NewStorage()
	parser, err := packfile.NewParserWithStorage(packfile.NewScanner(pack), objects)
	if err == nil {
		_, err = parser.Parse()
	}
	if err != nil {
		return errPack().WithCause(err)
	}
	r := &repository{ctx: ctx, objects: objects, unpacker: unpacker{limits: f.limits}}
	commit, tree, err := r.tree(want)
	if err != nil {
		return err
	}
	got.commit = commit.String()
	if s.Path != "" {
		below := tree
		for part := range strings.SplitSeq(s.Path, "/") {
			if below == plumbing.ZeroHash {
				break
			}
			if below, err = r.below(below, part); err != nil {
				return err
			}
		}
		if below != plumbing.ZeroHash { // else it may lie deeper
			tree, r.within = below, s.Path
		}
	}
	if err := r.walk(tree, "", 0); err != nil {
		return err
	}
	return r.choose(s, got)
}

func errPack() *fault.Error {
	return fault.New(fault.Invalid, "what the repository sent is damaged").WithHint("try again; if it stays so, tell who runs it")
}

// repository reads the objects of a pack that was weighed.
type repository struct {
	ctx     context.Context
	objects *memory.Storage
	unpacker
	entries int
}

func (r *repository) read(hash plumbing.Hash, kind plumbing.ObjectType) ([]byte, error) {
	if r.ctx.Err() != nil {
		return nil, context.Cause(r.ctx)
	}
	object, err := r.objects.EncodedObject(kind, hash)
	if err != nil {
		return nil, errPack().WithCause(err)
	}
	in, err := object.Reader()
	if err != nil {
		return nil, errPack().WithCause(err)
	}
	defer in.Close()
	return io.ReadAll(in)
}

// tree finds the tree of a commit, or of the commit that a tag is of.
func (r *repository) tree(hash plumbing.Hash) (commit, tree plumbing.Hash, err error) {
	for range 5 { // tags of tags
		object, err := r.objects.EncodedObject(plumbing.AnyObject, hash)
		if err != nil {
			return commit, tree, errPack().WithCause(err)
		}
		data, err := r.read(hash, object.Type())
		if err != nil {
			return commit, tree, err
		}
		key, rest, _ := strings.Cut(string(data), " ")
		value, _, _ := strings.Cut(rest, "\n")
		if !commitName.MatchString(value) {
			return commit, tree, errPack()
		}
		switch {
		case object.Type() == plumbing.CommitObject && key == "tree":
			return hash, plumbing.NewHash(value), nil
		case object.Type() == plumbing.TagObject && key == "object":
			hash = plumbing.NewHash(value)
		default:
			return commit, tree, errPack()
		}
	}
	return commit, tree, errPack()
}

// Modes of entries of a tree.
const (
	gitFolder  = "40000"
	gitFile    = "100644"
	gitProgram = "100755"
	gitShared  = "100664" // of old repositories
)

// each calls visit with the entries of a tree: each is its mode, a blank, its name,
// a zero and 20 bytes.
func (r *repository) each(tree plumbing.Hash, visit func(mode, name string, hash plumbing.Hash) error) error {
	data, err := r.read(tree, plumbing.TreeObject)
	if err != nil {
		return err
	}
	for rest := string(data); rest != ""; {
		if r.entries++; r.entries > r.limits.Entries {
			return errTooLarge()
		}
		mode, after, ok := strings.Cut(rest, " ")
		name, after, ok2 := strings.Cut(after, "\x00")
		var hash plumbing.Hash
		if !ok || !ok2 || len(after) < len(hash) || name == "" || strings.Contains(name, "/") {
			return errPack()
		}
		copy(hash[:], after)
		rest = after[len(hash):]
		if err := visit(mode, name, hash); err != nil {
			return err
		}
	}
	return nil
}

// below finds a folder in a tree; zero: it has none of that name.
func (r *repository) below(tree plumbing.Hash, want string) (found plumbing.Hash, err error) {
	err = r.each(tree, func(mode, name string, hash plumbing.Hash) error {
		if name == want && mode == gitFolder {
			found = hash
		}
		return nil
	})
	return found, err
}

// walk takes the files of a tree. Trees may be shared: what they hold is counted
// each time.
func (r *repository) walk(tree plumbing.Hash, in string, depth int) error {
	if depth > 2*maxDepth {
		return errTooLarge()
	}
	return r.each(tree, func(mode, name string, hash plumbing.Hash) error {
		name = in + name
		switch mode {
		case gitFolder:
			return r.walk(hash, name+"/", depth+1)
		case gitFile, gitProgram, gitShared:
			clean, err := cleanPath(name)
			if err != nil {
				return err
			}
			data, err := r.read(hash, plumbing.BlobObject)
			if err != nil {
				return err
			}
			perm := fs.FileMode(0o644)
			if mode == gitProgram {
				perm = 0o755
			}
			return r.add(clean, perm, strings.NewReader(string(data)))
		}
		return r.oddly(name) // a link or a submodule
	})
}
