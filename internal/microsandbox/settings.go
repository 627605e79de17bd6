package microsandbox

import (
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"paddock/internal/fault"
	"paddock/internal/session"
)

// Settings are a sandbox's, in microsandbox's notation.
type Settings struct {
	Image   string
	Memory  int64    // MiB; zero: the default, which is also the most
	CPUs    int64    // zero: the default
	Volumes []string // "host:guest" or "host:guest:ro"
	Ports   []string // "host:guest"
	Envs    []string // "NAME=value"
}

// Bounds of Settings.
const (
	maxCPUs    = 256
	leastPort  = 1024    // of this machine: those below are its own services'
	maxMemory  = 1 << 30 // MiB
	maxEntries = 64      // volumes, ports and variables, each
	// maxVariable bounds a variable, in bytes.
	maxVariable = 32 << 10
)

func (c *Settings) memory() int64 {
	if c == nil {
		return 0
	}
	return c.Memory << 20
}

// machine reads settings, and reports all mistakes at once.
func (s *Service) machine(name Name, c *Settings) (*session.Machine, error) {
	m := &session.Machine{Sandbox: &session.SandboxName{Namespace: name.Namespace, Name: name.Sandbox}}
	if c == nil {
		return m, nil
	}
	var errs []error
	if m.Image = c.Image; c.CPUs < 0 || c.CPUs > maxCPUs || c.Memory < 0 || c.Memory > maxMemory {
		errs = append(errs, fault.New(fault.Invalid, "cpus lies between 1 and %d, and memory is not negative", maxCPUs))
	}
	m.CPUs = float64(c.CPUs)
	if len(c.Volumes) > maxEntries || len(c.Ports) > maxEntries || len(c.Envs) > maxEntries {
		return nil, fault.New(fault.Invalid, "a sandbox has at most %d volumes, ports and variables each", maxEntries)
	}
	for _, text := range c.Volumes {
		v, err := s.volume(text)
		if slices.ContainsFunc(m.Volumes, func(other session.Volume) bool { return other.Guest == v.Guest }) && err == nil {
			err = fault.New(fault.Invalid, "two volumes lie at %s in the sandbox", v.Guest)
		}
		m.Volumes, errs = append(m.Volumes, v), append(errs, err)
	}
	for _, text := range c.Ports {
		p, err := portOf(text)
		if slices.ContainsFunc(m.Ports, func(other session.Port) bool { return other.Host == p.Host }) && err == nil {
			err = fault.New(fault.Invalid, "the port %d of this machine is asked for twice", p.Host)
		}
		m.Ports, errs = append(m.Ports, p), append(errs, err)
	}
	for _, text := range c.Envs {
		key, value, ok := strings.Cut(text, "=")
		if !ok || key == "" || strings.ContainsRune(text, 0) || len(text) > maxVariable {
			errs = append(errs, fault.New(fault.Invalid, "%s is no variable: one is NAME=value", quoted(text)))
			continue
		}
		if m.Env == nil {
			m.Env = map[string]string{}
		}
		m.Env[key] = value
	}
	return m, joined(errs)
}

// volume reads one, and refuses what no operator allowed.
func (s *Service) volume(text string) (session.Volume, error) {
	parts := strings.Split(text, ":")
	readOnly := len(parts) == 3 && parts[2] == "ro"
	if len(parts) != 2 && !readOnly && !(len(parts) == 3 && parts[2] == "rw") {
		return session.Volume{}, fault.New(fault.Invalid, "%q is no volume: one is host:guest or host:guest:ro", text)
	}
	host, guest := parts[0], path.Clean(parts[1])
	switch {
	case !filepath.IsAbs(host) || !path.IsAbs(parts[1]):
		return session.Volume{}, fault.New(fault.Invalid, "the volume %q needs absolute paths on both sides", text)
	case reserved(guest):
		return session.Volume{}, fault.New(fault.Invalid, "no volume can lie at %s in a sandbox", guest).WithHint("choose another folder, such as /data")
	}
	real, ok := s.allowed(host)
	if !ok {
		return session.Volume{}, errFolder(host)
	}
	return session.Volume{Host: real, Guest: guest, ReadOnly: readOnly}, nil
}

// errFolder says the same of a folder that is not there and of one that is: who
// asks shall not learn what this machine has.
func errFolder(host string) error {
	return fault.New(fault.Denied, "the folder %s of this machine may not be given to a sandbox", host).
		WithHint("who runs the server can allow it with sandbox.volumes; files can be brought into /workspace instead")
}

// allowed tells where a path leads, and whether an operator allowed that.
func (s *Service) allowed(host string) (real string, ok bool) {
	for _, folder := range s.volumes {
		if real, ok := within(host, folder); ok {
			return real, true
		}
	}
	return "", false
}

// within gives where a path really leads, if that is a folder that was allowed or
// lies below it. What is not there is in no folder.
func within(host, allowed string) (real string, ok bool) {
	real, err := filepath.EvalSymlinks(host)
	if err != nil {
		return "", false
	}
	top, err := filepath.EvalSymlinks(allowed)
	if err != nil {
		return "", false
	}
	rel, err := filepath.Rel(top, real)
	return real, err == nil && filepath.IsLocal(rel)
}

// reserved tells whether a folder of the guest is not for volumes: what is
// paddock's own, and what programs need to be as it is.
func reserved(guest string) bool {
	for _, own := range []string{"/workspace", "/app", "/tmp", "/proc", "/sys", "/dev", "/bin", "/sbin", "/lib", "/lib64", "/usr", "/etc"} {
		if guest == "/" || guest == own || own != "/workspace" && own != "/tmp" && strings.HasPrefix(guest, own+"/") {
			return true
		}
	}
	return false
}

// quoted is what somebody wrote, short enough to be told.
func quoted(text string) string {
	if len(text) > 100 {
		text = strings.ToValidUTF8(text[:100], "") + "…"
	}
	return strconv.Quote(text)
}

func portOf(text string) (session.Port, error) {
	host, guest, ok := strings.Cut(text, ":")
	h, errHost := strconv.ParseUint(host, 10, 16)
	g, errGuest := strconv.ParseUint(guest, 10, 16)
	if !ok || errHost != nil || errGuest != nil || h == 0 || g == 0 {
		return session.Port{}, fault.New(fault.Invalid, "%s is no port: one is host:guest, as in 8080:80", quoted(text))
	}
	if h < leastPort {
		return session.Port{}, fault.New(fault.Denied, "a sandbox gets no port of this machine below %d, and %d is one", leastPort, h).WithHint("choose another one, as in %d:%d", 8000+h, g)
	}
	return session.Port{Host: uint16(h), Guest: uint16(g)}, nil
}

// joined makes one fault of several mistakes; nil where there are none. One that
// was denied goes before those that were wrong.
func joined(errs []error) error {
	var words []string
	var first *fault.Error
	for _, err := range errs {
		if f := fault.Of(err); f != nil {
			words = append(words, f.Message)
			if first == nil || f.Kind == fault.Denied && first.Kind != fault.Denied {
				first = f
			}
		}
	}
	if first == nil {
		return nil
	}
	all := *first
	all.Message = strings.Join(words, "; ")
	return &all
}
