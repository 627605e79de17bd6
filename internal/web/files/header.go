package files

import (
	"fmt"
	"net/http"
	"path"
	"strings"

	"paddock/internal/fault"
	"paddock/internal/workspace"
)

// safe makes a browser take a response for what it says to be, and for no page
// of this server's.
func safe(head http.Header) {
	head.Set("X-Content-Type-Options", "nosniff")
	head.Set("Content-Security-Policy", "sandbox; default-src 'none'; frame-ancestors 'none'")
	head.Set("Cross-Origin-Resource-Policy", "same-origin")
	head.Set("Referrer-Policy", "no-referrer")
}

// pictures are what may be shown where a link is followed: nothing of them runs.
var pictures = map[string]string{
	".png": "image/png", ".jpg": "image/jpeg", ".jpeg": "image/jpeg", ".gif": "image/gif", ".webp": "image/webp",
}

// types are those of files that are saved; others are application/octet-stream,
// among them all that a browser would execute, such as HTML and SVG.
var types = map[string]string{
	".txt": "text/plain; charset=utf-8", ".md": "text/plain; charset=utf-8", ".log": "text/plain; charset=utf-8", ".csv": "text/csv; charset=utf-8",
	".json": "application/json", ".pdf": "application/pdf", ".zip": "application/zip", ".gz": "application/gzip", ".tgz": "application/gzip",
	".tar": "application/x-tar", ".parquet": "application/vnd.apache.parquet", ".mp3": "audio/mpeg", ".wav": "audio/wav", ".mp4": "video/mp4",
}

// describe says what a file is, and that it is saved under its own name.
func describe(head http.Header, f workspace.File) {
	safe(head)
	head.Set("Cache-Control", "private, no-cache")
	head.Set("ETag", etag(f))
	name, extension := path.Base(f.Path), strings.ToLower(path.Ext(f.Path))
	if kind, ok := pictures[extension]; ok {
		head.Set("Content-Type", kind)
		head.Set("Content-Disposition", disposition("inline", name))
		return
	}
	kind, ok := types[extension]
	if !ok {
		kind = "application/octet-stream"
	}
	head.Set("Content-Type", kind)
	head.Set("Content-Disposition", disposition("attachment", name))
}

// disposition is a header as RFC 6266 has it: a name in ASCII, and where that
// is not the whole of it the name itself, encoded as RFC 8187 says.
func disposition(how, name string) string {
	var plain, coded strings.Builder
	for _, r := range name {
		if r < 0x80 && (isAlphanumeric(byte(r)) || strings.ContainsRune("._- ()", r)) {
			plain.WriteRune(r)
		} else {
			plain.WriteByte('_')
		}
	}
	for _, b := range []byte(name) {
		if isAlphanumeric(b) || strings.IndexByte("!#$&+-.^_`|~", b) >= 0 {
			coded.WriteByte(b)
		} else {
			fmt.Fprintf(&coded, "%%%02X", b)
		}
	}
	value := fmt.Sprintf(`%s; filename="%s"`, how, plain.String())
	if plain.String() != name {
		value += "; filename*=UTF-8''" + coded.String()
	}
	return value
}

func isAlphanumeric(b byte) bool {
	return b >= '0' && b <= '9' || b >= 'A' && b <= 'Z' || b >= 'a' && b <= 'z'
}

func etag(f workspace.File) string { return `"` + f.Tag() + `"` }

// conditions are what a writer expects to find (RFC 9110, 13.1).
type conditions struct{ match, noneMatch string }

func conditionsOf(r *http.Request) conditions {
	return conditions{match: strings.Join(r.Header.Values("If-Match"), ","), noneMatch: strings.Join(r.Header.Values("If-None-Match"), ",")}
}

// check is 412 where the file, nil when there is none, is not what was expected.
func (c conditions) check(f *workspace.File) error {
	switch {
	case c.match != "" && (f == nil || !names(c.match, etag(*f), "")):
		return errChanged
	case c.noneMatch != "" && f != nil && names(c.noneMatch, etag(*f), "W/"):
		return errChanged
	}
	return nil
}

var errChanged = refusal{fault.New(fault.Conflict, "the file is not as the request expects it").WithHint("read it again, then decide"), http.StatusPreconditionFailed}

// names reports whether a list of entity tags holds one, which may have a prefix
// in it; * is all of them.
func names(list, tag, prefix string) bool {
	for one := range strings.SplitSeq(list, ",") {
		one = strings.TrimSpace(one)
		if one == "*" || one == tag || prefix != "" && one == prefix+tag {
			return true
		}
	}
	return false
}
