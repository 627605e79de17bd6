package skill

import (
	"net/netip"
	"net/url"
	"path"
	"regexp"
	"strings"

	"paddock/internal/fault"
)

// Kind is where skills come from.
type Kind string

// The kinds of sources.
const (
	GitHub  Kind = "github"  // a folder of a repository, through GitHub's archives
	Git     Kind = "git"     // a folder of a repository, by git's protocol over HTTPS
	Page    Kind = "page"    // one SKILL.md
	Archive Kind = "archive" // a zip or tar.gz
	Local   Kind = "folder"  // a folder of this host
	Saved   Kind = "saved"   // a program that a model wrote
)

// Source says where a skill is. [ParseSource] makes it.
type Source struct {
	Kind   Kind
	Text   string // as it was written
	Repo   string // of GitHub: owner/name
	URL    string // of the others; of Local the folder
	Ref    string // a branch, tag or commit; empty: the default branch
	Path   string // of the skill's folder within the source; empty: to be found
	Digest string // what the skill has to be; empty: anything
}

const maxSource = 2000

const sourceHint = "write github:owner/repo/path[@ref], git+https://host/repo.git[@ref][#path], or the https URL of a SKILL.md, a .zip or a .tar.gz; #sha256=… pins what it is"

var (
	gitHubOwner = regexp.MustCompile(`^[A-Za-z0-9](-?[A-Za-z0-9]){0,38}$`)
	gitHubRepo  = regexp.MustCompile(`^[A-Za-z0-9._-]{1,100}$`)
	gitRef      = regexp.MustCompile(`^[A-Za-z0-9_.][A-Za-z0-9_./+-]{0,199}$`)
)

// ParseSource reads a source as people and models write it:
//
//	github:owner/repo/path[@ref]
//	git+https://host/repo.git[@ref][#path]
//	https://host/path/SKILL.md
//	https://host/path.zip      or .skill, .tar.gz, .tgz
//	any/folder                 of this host, or an archive, where local says so
//
// A model must not name a folder of this host: local is for the command line. URLs
// are https, or http to a loopback address. What is not a source is a fault.Invalid, or
// fault.Denied where it would be a folder.
//
// After # stand a path within the source, or, joined by &, subdirectory=path and
// sha256=digest: the digest that [Folder.Digest] gives of the skill.
func ParseSource(text string, local bool) (Source, error) {
	s := Source{Text: text}
	if text == "" || len(text) > maxSource || strings.ContainsFunc(text, func(r rune) bool { return r < ' ' || r == 0x7f }) {
		return s, errSource(text, "it is empty, too long, or holds control characters")
	}
	scheme, rest, _ := strings.Cut(text, ":")
	var err error
	switch strings.ToLower(scheme) {
	case "github":
		err = s.parseGitHub(rest)
	case "git+https", "git+http":
		err = s.parseGit(text[len("git+"):])
	case "https", "http":
		err = s.parseURL(text)
	default:
		err = s.parseLocal(text, local)
	}
	if err != nil {
		return s, err
	}
	return s, nil
}

func errSource(text, why string) *fault.Error {
	return fault.New(fault.Invalid, "%.100q is not a source of a skill: %s", text, why).WithHint("%s", sourceHint)
}

// fragment reads what stands after #.
func (s *Source) fragment(text string) error {
	if text == "" {
		return nil
	}
	if !strings.Contains(text, "=") {
		return s.within(text)
	}
	for pair := range strings.SplitSeq(text, "&") {
		key, value, _ := strings.Cut(pair, "=")
		var err error
		switch key {
		case "sha256":
			s.Digest, err = parseDigest(value)
		case "subdirectory":
			err = s.within(value)
		default:
			err = errSource(s.Text, "after # stand a path, subdirectory= or sha256=")
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// within sets the folder.
func (s *Source) within(text string) error {
	text = strings.TrimSuffix(strings.Trim(text, "/"), "/"+MainFile)
	if text == "" || text == "." || text == MainFile {
		return nil
	}
	clean, err := cleanPath(text)
	s.Path = clean
	return err
}

func (s *Source) ref(text string) error {
	if !gitRef.MatchString(text) || strings.Contains(text, "..") || strings.Contains(text, "//") || strings.HasSuffix(text, "/") || strings.HasSuffix(text, ".lock") {
		return errSource(s.Text, "after @ stands a branch, a tag or a commit")
	}
	s.Ref = text
	return nil
}

func (s *Source) parseGitHub(text string) error {
	s.Kind = GitHub
	text, after, _ := strings.Cut(text, "#")
	if err := s.fragment(after); err != nil {
		return err
	}
	text, ref, pinned := strings.Cut(text, "@")
	if pinned {
		if err := s.ref(ref); err != nil {
			return err
		}
	}
	parts := strings.SplitN(strings.TrimPrefix(text, "//"), "/", 3)
	if len(parts) < 2 || !gitHubOwner.MatchString(parts[0]) || !gitHubRepo.MatchString(parts[1]) || strings.Trim(parts[1], ".") == "" {
		return errSource(s.Text, "after github: stand an owner and a repository")
	}
	s.Repo = parts[0] + "/" + strings.TrimSuffix(parts[1], ".git")
	if len(parts) == 3 {
		return s.within(parts[2])
	}
	return nil
}

// parseHTTPS checks a URL that is going to be fetched. Without TLS it may be an
// address of this host: whether it is reached is for the transport to say.
func (s *Source) parseHTTPS(text string) (*url.URL, error) {
	u, err := url.Parse(text)
	if err != nil || u.Host == "" || u.Opaque != "" {
		return nil, errSource(s.Text, "it is not a URL")
	}
	if addr, err := netip.ParseAddr(u.Hostname()); !strings.EqualFold(u.Scheme, "https") && (err != nil || !addr.IsLoopback()) {
		return nil, errSource(s.Text, "its URL is not https")
	}
	if u.User != nil {
		return nil, errSource(s.Text, "its URL holds a user").WithHint("put credentials into the server's configuration, not into a source")
	}
	if err := s.fragment(u.Fragment); err != nil {
		return nil, err
	}
	u.Fragment, u.RawFragment = "", ""
	return u, nil
}

func (s *Source) parseGit(text string) error {
	s.Kind = Git
	u, err := s.parseHTTPS(text)
	if err != nil {
		return err
	}
	if u.RawQuery != "" || u.ForceQuery {
		return errSource(s.Text, "a repository's URL has no ?")
	}
	if at := strings.LastIndexByte(u.Path, '@'); at >= 0 {
		if err := s.ref(u.Path[at+1:]); err != nil {
			return err
		}
		u.Path, u.RawPath = u.Path[:at], ""
	}
	if strings.Trim(u.Path, "/") == "" {
		return errSource(s.Text, "it names a host and no repository")
	}
	s.URL = u.String()
	return nil
}

func (s *Source) parseURL(text string) error {
	u, err := s.parseHTTPS(text)
	if err != nil {
		return err
	}
	s.URL = u.String()
	switch lower := strings.ToLower(u.Path); {
	case strings.HasSuffix(lower, ".zip"), strings.HasSuffix(lower, ".skill"), strings.HasSuffix(lower, ".tar.gz"), strings.HasSuffix(lower, ".tgz"):
		s.Kind = Archive
	case strings.HasSuffix(lower, ".md"):
		s.Kind = Page
		if s.Path != "" {
			return errSource(s.Text, "there is no folder within a page")
		}
	default:
		return errSource(s.Text, "its URL ends neither in .md nor as an archive does")
	}
	return nil
}

func (s *Source) parseLocal(text string, local bool) error {
	s.Kind = Local
	if scheme, _, ok := strings.Cut(text, "://"); ok {
		return errSource(text, "nothing is fetched by "+scheme)
	}
	if !local {
		return fault.New(fault.Denied, "%.100q is not a source of a skill, or it is a folder or a file of this host", text).WithHint("%s; folders and files are installed with the command line", sourceHint)
	}
	s.URL = text
	return nil
}

// origin is who has the say over a source: an update has to come from there.
func (s Source) origin() string {
	switch s.Kind {
	case GitHub:
		return "github:" + strings.ToLower(s.Repo)
	case Git, Archive, Page:
		if u, err := url.Parse(s.URL); err == nil {
			if s.Kind == Git {
				return "git:" + strings.ToLower(u.Host) + strings.TrimSuffix(u.Path, ".git")
			}
			return "https:" + strings.ToLower(u.Host) + firstFolder(u)
		}
	}
	return string(s.Kind)
}

// firstFolder is the folder at a URL's root in which it lies: on hosts that many share
// it is somebody's own. Empty: it lies in none.
func firstFolder(u *url.URL) string {
	if folder, _, inside := strings.Cut(strings.TrimPrefix(path.Clean("/"+u.Path), "/"), "/"); inside {
		return "/" + folder
	}
	return ""
}

// Host is the rule of package egress for what a URL leads to; empty: it has none. What
// a redirect leads to may be another host.
func (s Source) Host() string {
	if s.Kind != Git && s.Kind != Archive && s.Kind != Page {
		return ""
	}
	u, err := url.Parse(s.URL)
	if err != nil {
		return ""
	}
	rule := u.Host
	if addr, err := netip.ParseAddr(u.Hostname()); err == nil && addr.IsLoopback() {
		rule += "!private"
	}
	return rule
}

// folderName is what the skill's folder is called at the source, and whether it is
// a name that somebody gave it there.
func (s Source) folderName() (name string, given bool) {
	if s.Path != "" {
		return path.Base(s.Path), true
	}
	u, err := url.Parse(s.URL)
	switch {
	case s.Kind == GitHub:
		return path.Base(s.Repo), false
	case s.Kind == Git && err == nil:
		return strings.TrimSuffix(path.Base(u.Path), ".git"), false
	case s.Kind == Page && err == nil:
		return path.Base(path.Dir(u.Path)), false
	}
	return "", false
}
