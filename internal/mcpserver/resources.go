package mcpserver

import (
	"context"
	"net/url"
	"path"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"paddock/internal/fault"
	"paddock/internal/mcpserver/transport"
	"paddock/internal/membudget"
	"paddock/internal/session"
)

const (
	uriPrefix = "paddock://sessions/"
	uriFiles  = "/files/"

	// maxResource bounds what one resources/read gives.
	maxResource = 8 << 20
	// resourcePage is how many files one resources/list gives.
	resourcePage = 500
)

// addResources makes every workspace file a resource. The list holds those of
// the default session; any other session's can be read by its id.
func (s *Server) addResources(to *mcp.Server) {
	to.AddResourceTemplate(&mcp.ResourceTemplate{
		Name: "workspace file", Title: "Workspace file",
		Description: "A file in a session's /workspace",
		URITemplate: uriPrefix + "{session_id}" + uriFiles + "{+path}",
	}, s.readResource)
}

// fileURI is the address of a workspace file.
func fileURI(id session.ID, p string) string {
	parts := strings.Split(p, "/")
	for k := range parts {
		parts[k] = url.PathEscape(parts[k])
	}
	return uriPrefix + string(id) + uriFiles + strings.Join(parts, "/")
}

// parseURI takes an address apart. What the path means, and whether it may be
// read, is for the workspace to say.
func parseURI(uri string) (session.ID, string, error) {
	rest, ok := strings.CutPrefix(uri, uriPrefix)
	id, file, found := strings.Cut(rest, uriFiles)
	if !ok || !found || !transport.IsSessionName(id) {
		return "", "", fault.New(fault.Invalid, "there is no such resource").WithHint("a file's address is %s<session_id>%s<path>", uriPrefix, uriFiles)
	}
	parts := strings.Split(file, "/")
	for k, part := range parts {
		name, err := url.PathUnescape(part)
		if err != nil || strings.ContainsAny(name, "/\\") {
			return "", "", fault.New(fault.Invalid, "the address of a file is malformed").WithHint("escape each part of the path by itself")
		}
		parts[k] = name
	}
	return session.ID(id), strings.Join(parts, "/"), nil
}

func (s *Server) readResource(ctx context.Context, req *mcp.ReadResourceRequest) (*mcp.ReadResourceResult, error) {
	b, err := s.bind(ctx, callerOf(req))
	if err != nil {
		return nil, wireError(err)
	}
	id, file, err := parseURI(req.Params.URI)
	if err != nil {
		return nil, wireError(err)
	}
	tree, done, err := s.config.Sessions.Files(b.Owner, id)
	if err != nil {
		return nil, wireError(err)
	}
	defer done()
	s.Named(b.Owner, id)
	if f, err := tree.Stat(file); err == nil { // as bytes, as base64, and in the answer
		if err := membudget.Hold(ctx, 4*min(f.Size, maxResource)); err != nil {
			return nil, wireError(err)
		}
	}
	got, err := tree.ReadAll(file, maxResource)
	if s.config.Touched != nil {
		s.config.Touched(ctx, b.Owner, id, file, false, err)
	}
	if err != nil {
		return nil, wireError(err)
	}
	c := &mcp.ResourceContents{URI: req.Params.URI, MIMEType: mimeOf(got.Path, got.Text), Blob: got.Data}
	if got.Text && len(got.Data) > 0 { // the SDK leaves an empty text away, but not an empty blob
		c.Text, c.Blob = string(got.Data), nil
	}
	return &mcp.ReadResourceResult{Contents: []*mcp.ResourceContents{c}}, nil
}

// listResources lists the skills, on the first page, and the default session's files.
// It makes no session.
func (s *Server) listResources(ctx context.Context, req *mcp.ListResourcesRequest, withFiles, withSkills bool) (mcp.Result, error) {
	res := &mcp.ListResourcesResult{Resources: []*mcp.Resource{}, Cacheable: mcp.Cacheable{CacheScope: "private"}}
	b, err := s.bind(ctx, callerOf(req))
	if err != nil {
		return nil, wireError(err)
	}
	if withSkills && (req.Params == nil || req.Params.Cursor == "") {
		if res.Resources, err = s.skillResources(string(b.Owner)); err != nil {
			return nil, wireError(err)
		}
	}
	if !withFiles {
		return res, nil
	}
	return s.listFiles(ctx, b, req, res)
}

// listFiles adds a page of the default session's files to a list.
func (s *Server) listFiles(ctx context.Context, b Bound, req *mcp.ListResourcesRequest, res *mcp.ListResourcesResult) (mcp.Result, error) {
	id := s.defaultOf(b)
	if id == "" {
		return res, nil
	}
	tree, done, err := s.config.Sessions.Files(b.Owner, id)
	if fault.KindOf(err) == fault.NotFound {
		return res, nil // it has expired: there is nothing any more
	} else if err != nil {
		return nil, wireError(err)
	}
	defer done()
	files, _, err := tree.List(ctx, "")
	if err != nil {
		return nil, wireError(err)
	}
	after := ""
	if req.Params != nil {
		after = req.Params.Cursor
	}
	listed := 0
	for _, f := range files {
		if f.Path <= after {
			continue
		}
		if listed == resourcePage {
			res.NextCursor = res.Resources[len(res.Resources)-1].Name
			break
		}
		listed++
		res.Resources = append(res.Resources, &mcp.Resource{
			URI: fileURI(id, f.Path), Name: f.Path, MIMEType: byExtension[strings.ToLower(path.Ext(f.Path))], Size: f.Size,
			Annotations: &mcp.Annotations{LastModified: timestamp(f.Modified)},
		})
	}
	return res, nil
}

// byExtension holds what clients can tell apart. It does not depend on the host.
var byExtension = map[string]string{
	".css": "text/css", ".csv": "text/csv", ".gif": "image/gif", ".htm": "text/html", ".html": "text/html", ".jpeg": "image/jpeg",
	".jpg": "image/jpeg", ".js": "text/javascript", ".json": "application/json", ".md": "text/markdown", ".mjs": "text/javascript",
	".pdf": "application/pdf", ".png": "image/png", ".py": "text/x-python", ".svg": "image/svg+xml", ".toml": "application/toml",
	".ts": "text/x-typescript", ".txt": "text/plain", ".webp": "image/webp", ".xml": "application/xml", ".yaml": "application/yaml",
	".yml": "application/yaml", ".zip": "application/zip",
}

// mimeOf is a file's type by its name, and by its content where that says nothing.
func mimeOf(name string, text bool) string {
	if m := byExtension[strings.ToLower(path.Ext(name))]; m != "" {
		return m
	}
	if text {
		return "text/plain"
	}
	return "application/octet-stream"
}
