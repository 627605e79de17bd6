package mcpserver

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/url"
	"path"
	"slices"
	"strings"
	"sync"
	"unicode/utf8"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"paddock/internal/fault"
	"paddock/internal/mcpserver/transport"
	"paddock/internal/skill"
)

// Skills are resources, and what the extension io.modelcontextprotocol/skills
// (SEP-2640) adds to that: each file of one is skill://<name>/<path>.

const (
	skillsExtension = "io.modelcontextprotocol/skills"
	skillPrefix     = "skill://"
	folderType      = "inode/directory"
	// skillPage is how many skills one skills/list gives.
	skillPage = 50
	// mostSkillFiles and mostSkillBytes are the extension's own: no client has to
	// take a skill that is larger, and none is told of one.
	mostSkillFiles = 512
	mostSkillBytes = 16 << 20
	// maxEntries bounds the entries that are remembered; all of them go beyond it.
	maxEntries = 1000
)

// skillMethods are those of the extension.
var skillMethods = []string{"skills/list", "skills/get", "resources/directory/read"}

// skillEntries are what clients are told of skills, by their digests: to make one all
// of a skill is read.
type skillEntries struct {
	mu       sync.Mutex // guards byDigest
	byDigest map[string]*skillEntry
}

type skillEntry struct {
	URI         string          `json:"uri"`
	FrontMatter json.RawMessage `json:"frontmatter"`
	Resources   []skillFile     `json:"resources"`
}

type skillFile struct {
	URI    string `json:"uri"`
	Digest string `json:"digest"`
	Size   int64  `json:"size"`
}

type listSkillsParams struct {
	mcp.ParamsBase
	Cursor string `json:"cursor,omitempty"`
}

type getSkillParams struct {
	mcp.ParamsBase
	URI string `json:"uri"`
}

type readFolderParams struct {
	mcp.ParamsBase
	URI    string `json:"uri"`
	Cursor string `json:"cursor,omitempty"`
}

// whole is what all of these results begin with.
type whole struct {
	mcp.ResultBase
	ResultType string `json:"resultType"`
}

type listSkillsResult struct {
	whole
	mcp.Cacheable
	Skills     []*skillEntry `json:"skills"`
	NextCursor string        `json:"nextCursor,omitempty"`
}

type getSkillResult struct {
	whole
	mcp.Cacheable
	Skill *skillEntry `json:"skill"`
}

type readFolderResult struct {
	whole
	Resources []*mcp.Resource `json:"resources"`
}

var complete = whole{ResultType: "complete"}

// callerKey is of the context of what the SDK tells no more of than its parameters.
type callerKey struct{}

// addSkills makes the skills of whoever asks resources, and answers the extension's
// methods.
func (s *Server) addSkills(to *mcp.Server) {
	to.AddResourceTemplate(&mcp.ResourceTemplate{
		Name: "skill file", Title: "Skill file", Description: "A file of a skill",
		URITemplate: skillPrefix + "{skill}/{+path}",
	}, s.readSkillFile)
	for _, err := range []error{
		mcp.AddReceivingCustomMethod(to, "skills/list", asOwner(s, s.listSkills)),
		mcp.AddReceivingCustomMethod(to, "skills/get", asOwner(s, s.getSkill)),
		mcp.AddReceivingCustomMethod(to, "resources/directory/read", asOwner(s, s.readFolder)),
	} {
		if err != nil {
			panic("mcpserver: " + err.Error()) // a mistake in this package's names
		}
	}
}

// asOwner makes what the SDK calls of a method.
func asOwner[P, R any](s *Server, do func(owner string, params P) (R, error)) func(context.Context, *mcp.ServerSession, P) (R, error) {
	return func(ctx context.Context, _ *mcp.ServerSession, params P) (none R, err error) {
		from, _ := ctx.Value(callerKey{}).(transport.Caller)
		b, err := s.bind(ctx, from)
		if err != nil {
			return none, wireError(err)
		}
		res, err := do(string(b.Owner), params)
		if err != nil {
			return none, wireError(err)
		}
		return res, nil
	}
}

// served are the skills of an owner that clients are told of, by name.
func (s *Server) served(owner string) ([]skill.Record, error) {
	all, err := s.config.Skills.List(owner)
	return slices.DeleteFunc(all, func(r skill.Record) bool {
		var bytes int64
		for _, f := range r.Files {
			bytes += f.Size
		}
		return len(r.Files) > mostSkillFiles || bytes > mostSkillBytes
	}), err
}

func (s *Server) listSkills(owner string, params *listSkillsParams) (*listSkillsResult, error) {
	res := &listSkillsResult{whole: complete, Cacheable: mcp.Cacheable{CacheScope: "private"}, Skills: []*skillEntry{}}
	all, err := s.served(owner)
	if err != nil {
		return nil, err
	}
	after, last := "", ""
	if params != nil {
		after = params.Cursor
	}
	for _, r := range all {
		switch {
		case r.Name <= after:
			continue
		case len(res.Skills) == skillPage:
			res.NextCursor = last
			return res, nil
		}
		e, err := s.skillEntry(owner, r)
		if err != nil { // whoever reads it is told
			s.log.Warn("a skill is not listed", "skill", r.Name, "cause", fault.CauseOf(err))
			continue
		}
		res.Skills, last = append(res.Skills, e), r.Name
	}
	return res, nil
}

func (s *Server) getSkill(owner string, params *getSkillParams) (*getSkillResult, error) {
	uri := ""
	if params != nil {
		uri = params.URI
	}
	all, err := s.served(owner)
	if err != nil {
		return nil, err
	}
	k := slices.IndexFunc(all, func(r skill.Record) bool { return uri == skillURI(r.Name, skill.MainFile) })
	if k < 0 {
		return nil, fault.New(fault.NotFound, "there is no skill at %.200q", uri).WithHint("skills/list has the address of each")
	}
	e, err := s.skillEntry(owner, all[k])
	if err != nil {
		return nil, err
	}
	return &getSkillResult{whole: complete, Cacheable: mcp.Cacheable{CacheScope: "private"}, Skill: e}, nil
}

// skillEntry makes what clients are told of a skill.
func (s *Server) skillEntry(owner string, r skill.Record) (*skillEntry, error) {
	s.skills.mu.Lock()
	e := s.skills.byDigest[r.Digest]
	s.skills.mu.Unlock()
	if e != nil {
		return e, nil
	}
	in, err := s.config.Skills.Open(owner, r.Name)
	if err != nil {
		return nil, err
	}
	e = &skillEntry{URI: skillURI(r.Name, skill.MainFile)}
	if e.FrontMatter, err = in.Skill.FrontMatterJSON(); err != nil {
		return nil, err
	}
	for _, f := range in.Skill.Folder {
		sum := sha256.Sum256(f.Data)
		e.Resources = append(e.Resources, skillFile{skillURI(r.Name, f.Path), "sha256:" + hex.EncodeToString(sum[:]), int64(len(f.Data))})
	}
	s.skills.mu.Lock()
	defer s.skills.mu.Unlock()
	if s.skills.byDigest == nil || len(s.skills.byDigest) >= maxEntries {
		s.skills.byDigest = map[string]*skillEntry{}
	}
	s.skills.byDigest[in.Digest] = e
	return e, nil
}

// skillURI is the address of a skill's file.
func skillURI(name, file string) string {
	parts := strings.Split(file, "/")
	for k := range parts {
		parts[k] = url.PathEscape(parts[k])
	}
	return skillPrefix + name + "/" + strings.Join(parts, "/")
}

// parseSkillURI takes an address apart. The path is empty for the skill's folder.
func parseSkillURI(uri string) (name, file string, err error) {
	rest, ok := strings.CutPrefix(uri, skillPrefix)
	name, file, _ = strings.Cut(rest, "/")
	parts := strings.Split(file, "/")
	for k, part := range parts {
		text, err := url.PathUnescape(part)
		if err != nil || strings.ContainsAny(text, "/\\") {
			ok = false
			break
		}
		parts[k] = text
	}
	if file = strings.Join(parts, "/"); !ok || name == "" {
		return "", "", fault.New(fault.Invalid, "%.200q is not an address of a skill's file", uri).WithHint("it is %sname/path", skillPrefix)
	}
	return name, file, nil
}

func (s *Server) readSkillFile(ctx context.Context, req *mcp.ReadResourceRequest) (*mcp.ReadResourceResult, error) {
	b, err := s.bind(ctx, callerOf(req))
	if err != nil {
		return nil, wireError(err)
	}
	name, file, err := parseSkillURI(req.Params.URI)
	if err != nil {
		return nil, wireError(err)
	}
	in, err := s.config.Skills.Open(string(b.Owner), name)
	if k := fault.KindOf(err); k == fault.NotFound || k == fault.Invalid {
		return nil, mcp.ResourceNotFoundError(req.Params.URI)
	} else if err != nil {
		return nil, wireError(err)
	}
	f, ok := in.Skill.Folder.Get(file)
	if !ok {
		return nil, mcp.ResourceNotFoundError(req.Params.URI)
	}
	if len(f.Data) > maxResource {
		return nil, wireError(fault.New(fault.Exhausted, "the file has %d bytes, and a resource %d at most", len(f.Data), maxResource).WithHint("programs read it at %s/%s", skill.Mount(name), file))
	}
	text := isText(f.Data)
	c := &mcp.ResourceContents{URI: req.Params.URI, MIMEType: mimeOf(file, text), Blob: f.Data}
	if text && len(f.Data) > 0 { // as in readResource
		c.Text, c.Blob = string(f.Data), nil
	}
	return &mcp.ReadResourceResult{Contents: []*mcp.ResourceContents{c}}, nil
}

// readFolder gives what lies directly in a folder of a skill.
func (s *Server) readFolder(owner string, params *readFolderParams) (*readFolderResult, error) {
	uri := ""
	if params != nil {
		uri = params.URI
	}
	none := fault.New(fault.NotFound, "there is no folder at %.200q", uri).WithHint("%sname is the folder of a skill", skillPrefix)
	name, dir, err := parseSkillURI(uri)
	if err != nil {
		return nil, err
	}
	in, err := s.config.Skills.Open(owner, name)
	if k := fault.KindOf(err); k == fault.NotFound || k == fault.Invalid || err == nil && strings.HasSuffix(uri, "/") {
		return nil, none
	} else if err != nil {
		return nil, err
	}
	res := &readFolderResult{whole: complete, Resources: []*mcp.Resource{}}
	seen := map[string]bool{}
	for _, f := range in.Skill.Folder {
		rest := f.Path
		if dir != "" {
			var below bool
			if rest, below = strings.CutPrefix(f.Path, dir+"/"); !below {
				continue
			}
		}
		child, _, deeper := strings.Cut(rest, "/")
		if seen[child] {
			continue
		}
		seen[child] = true
		r := &mcp.Resource{URI: skillURI(name, path.Join(dir, child)), Name: child, MIMEType: folderType}
		if !deeper {
			r.MIMEType, r.Size = mimeOf(f.Path, isText(f.Data)), int64(len(f.Data))
		}
		if f.Path == skill.MainFile {
			r.Name, r.Description = in.Name, in.Description
		}
		res.Resources = append(res.Resources, r)
	}
	if len(res.Resources) == 0 {
		return nil, none
	}
	return res, nil
}

// skillResources lists the skills' SKILL.md.
func (s *Server) skillResources(owner string) ([]*mcp.Resource, error) {
	all, err := s.served(owner)
	if err != nil {
		return nil, fmt.Errorf("listing skills: %w", err)
	}
	list := []*mcp.Resource{}
	for _, r := range all {
		one := &mcp.Resource{URI: skillURI(r.Name, skill.MainFile), Name: r.Name, Description: r.Description, MIMEType: "text/markdown"}
		for _, f := range r.Files {
			if f.Path == skill.MainFile {
				one.Size = f.Size
			}
		}
		list = append(list, one)
	}
	return list, nil
}

// isText tells what is shown as text.
func isText(data []byte) bool { return utf8.Valid(data) && bytes.IndexByte(data, 0) < 0 }
