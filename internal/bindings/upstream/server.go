// Package upstream is connections to other MCP servers: over stdio, over
// Streamable HTTP in both eras of the protocol, and over its predecessor with two
// endpoints. A [Conn] is one connection, and a [Pool] keeps one for each key.
//
// A server is not trusted with anything but the answers to what it is asked. What
// it sends is bounded, each message and all together; nothing of it is executed;
// what is kept of it is kept byte for byte as it came.
//
// Locks: Pool.mu before entry.mu; everything else is never held together.
package upstream

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"golang.org/x/net/http/httpguts"

	"paddock/internal/fault"
)

// The transports of a server that is reached by HTTP.
const (
	TransportAuto = "auto" // Streamable HTTP, or what came before it where the server knows nothing else
	TransportHTTP = "http" // Streamable HTTP
	TransportSSE  = "sse"  // the transport with two endpoints of 2024-11-05
)

const (
	// DefaultCallTimeout is how long a call may take. It is what other hosts of MCP
	// servers grant (60 s).
	DefaultCallTimeout = 60 * time.Second
	// DefaultResponseCap is how long a message may be: as much as the Go SDK accepts
	// of a line or an event.
	DefaultResponseCap = 16 << 20
)

// Server is a server's definition: either a command, which is started and spoken to
// over stdio, or a URL. Who can write one can start programs.
type Server struct {
	// Name is what the server is called in errors and in the log.
	Name string

	// Command is a program's path or name, found in the PATH that it gets. Args
	// follow it; no shell reads them.
	Command string
	Args    []string
	// Env is what the program's environment has beside PATH, HOME, LANG and TMPDIR,
	// which are paddock's unless they are here.
	Env map[string]string
	// Dir is where the program runs; empty: the folder for temporary files.
	Dir string

	// URL is the endpoint, http or https.
	URL string
	// Headers go with each request to the URL's origin, and nowhere else.
	Headers map[string]string
	// Transport is one of the constants; empty: TransportAuto.
	Transport string

	// CallTimeout bounds a call; 0: DefaultCallTimeout.
	CallTimeout time.Duration
	// ResponseCap bounds one message of the server's, in bytes; 0: DefaultResponseCap.
	ResponseCap int
}

func (s Server) timeout() time.Duration {
	if s.CallTimeout <= 0 {
		return DefaultCallTimeout
	}
	return s.CallTimeout
}

func (s Server) limit() int {
	if s.ResponseCap <= 0 {
		return DefaultResponseCap
	}
	return s.ResponseCap
}

// Check tells everything that is wrong with the definition, without the values of
// its headers and variables.
func (s Server) Check() error {
	var all []error
	bad := func(format string, args ...any) { all = append(all, fmt.Errorf(format, args...)) }
	if s.Name == "" {
		bad("it has no name")
	}
	switch {
	case s.Command == "" && s.URL == "":
		bad("it has neither a command nor a URL")
	case s.Command != "" && s.URL != "":
		bad("it has a command and a URL")
	case s.URL != "":
		all = append(all, s.checkURL()...)
	default:
		all = append(all, s.checkCommand()...)
	}
	if len(all) == 0 {
		return nil
	}
	err := errors.Join(all...)
	return fault.New(fault.Invalid, "the server %q is not well defined: %s", s.Name, strings.ReplaceAll(err.Error(), "\n", "; ")).WithCause(err)
}

func (s Server) checkCommand() (all []error) {
	if s.Transport != "" || len(s.Headers) > 0 {
		all = append(all, errors.New("headers and a transport are for servers with a URL"))
	}
	for _, text := range append([]string{s.Command, s.Dir}, s.Args...) {
		if strings.ContainsRune(text, 0) {
			all = append(all, errors.New("there is a NUL in its command"))
			break
		}
	}
	for name, value := range s.Env {
		if name == "" || strings.ContainsAny(name, "=\x00") || strings.ContainsRune(value, 0) {
			all = append(all, fmt.Errorf("the variable %q cannot be set", name))
		}
	}
	return all
}

func (s Server) checkURL() (all []error) {
	if len(s.Args) > 0 || len(s.Env) > 0 || s.Dir != "" {
		all = append(all, errors.New("arguments, variables and a folder are for servers with a command"))
	}
	u, err := url.Parse(s.URL)
	switch {
	case err != nil:
		all = append(all, errors.New("its URL cannot be read")) // url.Error repeats the URL, which may hold a password
	case u.Scheme != "http" && u.Scheme != "https" || u.Host == "":
		all = append(all, errors.New("its URL is not one of http or https with a host, such as https://example.com/mcp"))
	case u.User != nil:
		all = append(all, errors.New("its URL holds a name or a password; they belong into a header"))
	case u.Fragment != "":
		all = append(all, errors.New("its URL has a fragment"))
	}
	switch s.Transport {
	case "", TransportAuto, TransportHTTP, TransportSSE:
	default:
		all = append(all, fmt.Errorf("its transport %q is not one of auto, http and sse", s.Transport))
	}
	for name, value := range s.Headers {
		switch canonical := http.CanonicalHeaderKey(name); {
		case !httpguts.ValidHeaderFieldName(name) || !httpguts.ValidHeaderFieldValue(value):
			all = append(all, fmt.Errorf("the header %q cannot be sent", name))
		case ours[canonical] || strings.HasPrefix(canonical, "Mcp-"):
			all = append(all, fmt.Errorf("the header %q is the protocol's own", name))
		}
	}
	return all
}

// ours are the headers that only this package sets.
var ours = map[string]bool{
	"Accept": true, "Accept-Encoding": true, "Connection": true, "Content-Length": true, "Content-Type": true, "Host": true,
	"Last-Event-Id": true, "Te": true, "Trailer": true, "Transfer-Encoding": true, "Upgrade": true,
}

// Key is a digest of the whole definition. Two servers with one key are the same;
// it tells nothing about headers and variables to who does not know them.
func (s Server) Key() string { return digest(s) }

// Place is a digest of where the server is, whatever it is called and sent there: two
// definitions with one place are of the same server.
func (s Server) Place() string {
	return digest(Server{Command: s.Command, Args: s.Args, Dir: s.Dir, URL: s.URL, Transport: s.Transport})
}

func digest(s Server) string {
	text, err := json.Marshal(s) // maps are sorted
	if err != nil {
		panic(err) // there is nothing in it that cannot be written
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:])
}

// origin is scheme, host and port, in one form for each.
func origin(u *url.URL) string {
	port := u.Port()
	if port == "" {
		port = map[string]string{"http": "80", "https": "443"}[strings.ToLower(u.Scheme)]
	}
	return strings.ToLower(u.Scheme) + "://" + strings.ToLower(u.Hostname()) + ":" + port
}
