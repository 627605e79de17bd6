package microsandbox

import (
	"cmp"
	"os"
	"path"
	"path/filepath"
	"regexp"
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
	// Scripts are programs for the shell, by their names, that commands are then called
	// by; Shell runs those that do not say what does, empty: /bin/sh.
	Scripts map[string]string
	Shell   string
}

// Bounds of Settings.
const (
	maxCPUs    = 256
	leastPort  = 1024    // of this machine: those below are its own services'
	maxMemory  = 1 << 30 // MiB
	maxEntries = 64      // volumes, ports and variables, each
	// maxVariable bounds a variable, in bytes.
	maxVariable = 32 << 10
	// maxScript bounds a script, in bytes.
	maxScript = 64 << 10
)

// scriptName matches what a script may be called.
var scriptName = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9._-]{0,62}$`)

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
	if len(c.Volumes) > maxEntries || len(c.Ports) > maxEntries || len(c.Envs) > maxEntries || len(c.Scripts) > maxEntries {
		return nil, fault.New(fault.Invalid, "a sandbox has at most %d volumes, ports, variables and scripts each", maxEntries)
	}
	if c.Shell != "" && (!path.IsAbs(c.Shell) || strings.ContainsAny(c.Shell, "\n\x00") || len(c.Shell) > 200) {
		return nil, fault.New(fault.Invalid, "%s is not a shell: one is a path such as /bin/bash", quoted(c.Shell))
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
			errs = append(errs, fault.New(fault.Invalid, "%s is not a variable: one is NAME=value", quoted(text)))
			continue
		}
		if m.Env == nil {
			m.Env = map[string]string{}
		}
		m.Env[key] = value
	}
	for name, text := range c.Scripts {
		if !scriptName.MatchString(name) || len(text) > maxScript || strings.ContainsRune(text, 0) {
			errs = append(errs, fault.New(fault.Invalid, "%s is not a script: its name has up to 63 letters, digits, ., - and _, and its text at most %d bytes", quoted(name), maxScript))
			continue
		}
		if m.Scripts == nil {
			m.Scripts = map[string]string{}
		}
		m.Scripts[name] = runnable(text, c.Shell)
	}
	return m, joined(errs)
}

// runnable has a script say what runs it.
func runnable(text, shell string) string {
	if strings.HasPrefix(text, "#!") {
		return text
	}
	return "#!" + cmp.Or(shell, "/bin/sh") + "\n" + text + "\n"
}

// volume reads one, and refuses what no operator allowed.
func (s *Service) volume(text string) (session.Volume, error) {
	parts := strings.Split(text, ":")
	readOnly := len(parts) == 3 && parts[2] == "ro"
	if len(parts) != 2 && !readOnly && !(len(parts) == 3 && parts[2] == "rw") {
		return session.Volume{}, fault.New(fault.Invalid, "%q is not a volume: one is host:guest or host:guest:ro", text)
	}
	host, guest := parts[0], path.Clean(parts[1])
	switch {
	case !filepath.IsAbs(host) || !path.IsAbs(parts[1]):
		return session.Volume{}, fault.New(fault.Invalid, "the volume %q needs absolute paths on both sides", text)
	case guest == "/" || reserved(guest) && !overlaid(guest):
		return session.Volume{}, errReserved(guest)
	}
	real, ok := s.allowed(host)
	if !ok {
		return session.Volume{}, errFolder(host)
	}
	if info, err := os.Stat(real); reserved(guest) && (err != nil || !info.Mode().IsRegular()) {
		return session.Volume{}, errReserved(guest)
	}
	return session.Volume{Host: real, Guest: guest, ReadOnly: readOnly}, nil
}

func errReserved(guest string) error {
	return fault.New(fault.Invalid, "no volume can lie at %s in a sandbox", guest).WithHint("choose another folder, such as /data; a single file can lie over one of the image, such as /etc/hosts")
}

// overlaid tells whether a file may lie at a path, over one of the image's.
func overlaid(guest string) bool {
	for _, own := range []string{"/etc/", "/usr/", "/bin/", "/sbin/", "/lib/", "/lib64/"} {
		if strings.HasPrefix(guest, own) {
			return true
		}
	}
	return false
}

// errFolder says the same of a folder that is not there and of one that is: who
// asks shall not learn what this machine has.
func errFolder(host string) error {
	return fault.New(fault.Denied, "the folder %s of this machine may not be given to a sandbox", host).
		WithHint("the operator can allow it with sandbox.volumes; files can be brought into /workspace instead")
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
		return session.Port{}, fault.New(fault.Invalid, "%s is not a port: one is host:guest, as in 8080:80", quoted(text))
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
