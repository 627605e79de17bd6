package main

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/google/jsonschema-go/jsonschema"
)

// The registry's Go module has the schema that an entry has to fit.
const (
	registry    = "github.com/modelcontextprotocol/registry@v1.8.7"
	registrySum = "h1:k5j6R6gyiaHuHFLwvUzE9ojD7QMtBM6Ibpq5pz6Dj5o="
	schemaFile  = "internal/validators/schemas/2025-12-11.json"
)

// serverPackage is a way to install the server, in an entry of the registry.
type serverPackage struct {
	RegistryType     string     `json:"registryType"`
	Identifier       string     `json:"identifier"`
	Version          string     `json:"version,omitempty"`
	FileSHA256       string     `json:"fileSha256,omitempty"`
	PackageArguments []argument `json:"packageArguments,omitempty"`
	Transport        transport  `json:"transport"`
}

type argument struct {
	Type  string `json:"type"`
	Value string `json:"value"`
}

type transport struct {
	Type string `json:"type"`
}

// describe writes server.json, the entry for the MCP registry. Without a name there is a
// placeholder, which the registry refuses.
func (r *release) describe() error {
	text, err := os.ReadFile(filepath.Join(r.source, "packaging", "server.json"))
	if err != nil {
		return err
	}
	var entry map[string]any
	if err := json.Unmarshal(text, &entry); err != nil {
		return fmt.Errorf("reading packaging/server.json: %w", err)
	}
	if entry["packages"], err = r.serverPackages(); err != nil {
		return err
	}
	entry["version"] = r.version.semver
	if r.name != "" {
		entry["name"] = r.name
	}
	var out bytes.Buffer
	to := json.NewEncoder(&out)
	to.SetIndent("", "  ")
	to.SetEscapeHTML(false)
	if err := to.Encode(entry); err != nil {
		return err
	}
	schema, err := registrySchema()
	if err != nil {
		return err
	}
	if err := validate(schema, out.Bytes()); err != nil {
		return fmt.Errorf("server.json does not fit the registry's schema: %w", err)
	}
	return r.write("server.json", out.Bytes())
}

// serverPackages are the ways to install, the most general first. A client that starts one
// adds the argument mcp; a bundle has it in its manifest.
func (r *release) serverPackages() ([]serverPackage, error) {
	stdio, mcp := transport{"stdio"}, []argument{{"positional", "mcp"}}
	all := []serverPackage{
		{RegistryType: "npm", Identifier: called, Version: r.version.semver, PackageArguments: mcp, Transport: stdio},
		{RegistryType: "pypi", Identifier: called, Version: r.version.python, PackageArguments: mcp, Transport: stdio},
	}
	if r.image != "" {
		all = append(all, serverPackage{RegistryType: "oci", Identifier: r.image + ":" + r.version.semver, PackageArguments: mcp, Transport: stdio})
	}
	base := r.url
	if base == "" {
		base = "https://github.com/example/paddock/releases/download/v" + r.version.semver
	}
	for _, b := range r.binaries {
		content, err := os.ReadFile(filepath.Join(r.out, r.bundleName(b)))
		if err != nil {
			return nil, err
		}
		all = append(all, serverPackage{
			RegistryType: "mcpb", Identifier: base + "/" + r.bundleName(b), Version: r.version.semver,
			FileSHA256: fmt.Sprintf("%x", sha256.Sum256(content)), Transport: stdio,
		})
	}
	return all, nil
}

// registrySchema is the registry's own, from Go's module proxy or cache.
func registrySchema() ([]byte, error) {
	cmd := exec.Command("go", "mod", "download", "-json", registry)
	cmd.Dir = os.TempDir() // outside of any module
	cmd.Env = append(cmd.Environ(), "GOFLAGS=")
	out, err := cmd.Output()
	var module struct{ Dir, Sum, Error string }
	if decoded := json.Unmarshal(out, &module); decoded != nil || err != nil {
		return nil, fmt.Errorf("fetching the registry's schema through Go's module proxy: %s (%w)", module.Error, err)
	}
	if module.Sum != registrySum {
		return nil, fmt.Errorf("%s has the digest %s, want %s", registry, module.Sum, registrySum)
	}
	return os.ReadFile(filepath.Join(module.Dir, filepath.FromSlash(schemaFile)))
}

// validate checks a document against a JSON schema.
func validate(schema, document []byte) error {
	var s jsonschema.Schema
	if err := json.Unmarshal(schema, &s); err != nil {
		return fmt.Errorf("reading the schema: %w", err)
	}
	resolved, err := s.Resolve(nil)
	if err != nil {
		return fmt.Errorf("reading the schema: %w", err)
	}
	var data any
	if err := json.Unmarshal(document, &data); err != nil {
		return err
	}
	return resolved.Validate(data)
}
