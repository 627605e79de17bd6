package main

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"strings"
)

// launcher starts the binary of the package for the machine that it runs on.
//
//go:embed launcher.js
var launcher []byte

// npmPackage is a package.json.
type npmPackage struct {
	Name                 string            `json:"name"`
	Version              string            `json:"version"`
	Description          string            `json:"description"`
	License              string            `json:"license"`
	MCPName              string            `json:"mcpName,omitempty"` // by which the MCP registry knows the owner
	Keywords             []string          `json:"keywords,omitempty"`
	OS                   []string          `json:"os,omitempty"`
	CPU                  []string          `json:"cpu,omitempty"`
	Bin                  map[string]string `json:"bin,omitempty"`
	Files                []string          `json:"files,omitempty"`
	Engines              map[string]string `json:"engines,omitempty"`
	OptionalDependencies map[string]string `json:"optionalDependencies,omitempty"`
	PreferUnplugged      bool              `json:"preferUnplugged,omitempty"`
}

func (b binary) npmName() string { return called + "-" + b.npm }

// packNPMBinary writes the package that has the binary for one platform. npm installs those
// alone whose os and cpu are the machine's.
func (r *release) packNPMBinary(b binary) error {
	system, processor, _ := strings.Cut(b.npm, "-")
	return r.writeNPM(npmPackage{
		Name: b.npmName(), Version: r.version.semver, License: license,
		Description: fmt.Sprintf("paddock for %s; install %s", b, called),
		OS:          []string{system}, CPU: []string{processor}, PreferUnplugged: true,
	}, b.program("bin/paddock"), file{"sbom.cdx.json", 0o644, r.boms[b.String()]})
}

// packNPM writes the package that people install.
func (r *release) packNPM() error {
	p := npmPackage{
		Name: called, Version: r.version.semver, Description: description, License: license, MCPName: r.name,
		Keywords: []string{"mcp", "sandbox", "python", "javascript", "wasm"},
		Bin:      map[string]string{called: "launcher.js", "paddock": "launcher.js"},
		Engines:  map[string]string{"node": ">=18"}, OptionalDependencies: map[string]string{},
	}
	for _, b := range r.binaries {
		p.OptionalDependencies[b.npmName()] = r.version.semver
	}
	readme, err := r.texts("README.md")
	if err != nil {
		return err
	}
	return r.writeNPM(p, file{"launcher.js", 0o755, launcher}, readme[0])
}

func (r *release) writeNPM(p npmPackage, files ...file) error {
	legal, err := r.texts("LICENSE", "NOTICE")
	if err != nil {
		return err
	}
	manifest, err := json.MarshalIndent(p, "", "  ")
	if err != nil {
		return err
	}
	files = append(append(files, legal...), file{"package.json", 0o644, append(manifest, '\n')})
	content, err := packTar(below("package", files), r.time)
	if err != nil {
		return err
	}
	return r.write(fmt.Sprintf("%s-%s.tgz", p.Name, p.Version), content)
}
