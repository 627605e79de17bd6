package sessionfile

import (
	"maps"
	"slices"
)

// Machine is what a session's own machine is like, where its isolation gives it
// one.
type Machine struct {
	// Sandbox is what it is called by those who know it by a name; nil: nobody.
	Sandbox *SandboxName `json:"sandbox,omitempty"`
	// Image names its programs and libraries; empty: the configured default.
	Image string `json:"image,omitempty"`
	// User is what its user is called, who has a home of their own; see sandbox.Spec.
	User string `json:"user,omitempty"`
	// CPUs is how many processors' time it may take; zero: the isolation's default.
	CPUs float64 `json:"cpus,omitempty"`
	// Env is added to every program's environment.
	Env     map[string]string `json:"env,omitempty"`
	Volumes []Volume          `json:"volumes,omitempty"`
	Ports   []Port            `json:"ports,omitempty"`
	// Scripts are programs of the machine's own, by their names.
	Scripts map[string]string `json:"scripts,omitempty"`
}

// SandboxName is a name within a namespace.
type SandboxName struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
}

// Volume is a folder of the host that a machine sees.
type Volume struct {
	Host     string `json:"host"` // without links
	Guest    string `json:"guest"`
	ReadOnly bool   `json:"read_only,omitempty"`
}

// Port is one of the machine's that is reached through one of the host's, on
// loopback.
type Port struct {
	Host  uint16 `json:"host"`
	Guest uint16 `json:"guest"`
}

// Portable is what of a machine may leave its host: not its name, the host's
// folders and ports, nor variables, which may be secrets. Nil stays nil.
func (m *Machine) Portable() *Machine {
	if m == nil {
		return nil
	}
	return &Machine{Image: m.Image, User: m.User, CPUs: m.CPUs}
}

// Another is a machine of the same owner on the same host that is made alike. It
// has no name and no ports, which only one can have. Nil stays nil.
func (m *Machine) Another() *Machine {
	if m == nil {
		return nil
	}
	other := *m
	other.Sandbox, other.Ports = nil, nil
	return &other
}

// Same tells whether two machines are made alike, whatever they are called. Nil
// is the zero Machine.
func (m *Machine) Same(other *Machine) bool {
	var a, b Machine
	if m != nil {
		a = *m
	}
	if other != nil {
		b = *other
	}
	return a.Image == b.Image && a.User == b.User && a.CPUs == b.CPUs && maps.Equal(a.Env, b.Env) && slices.Equal(a.Volumes, b.Volumes) && slices.Equal(a.Ports, b.Ports) && maps.Equal(a.Scripts, b.Scripts)
}
