package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
)

// packBundle writes the MCP bundle for one platform, which Claude Desktop and others install
// by a double click. A manifest knows systems and not processors, so that each platform has
// a bundle of its own.
func (r *release) packBundle(b binary) error {
	text, err := os.ReadFile(filepath.Join(r.source, "packaging", "manifest.json"))
	if err != nil {
		return err
	}
	var manifest map[string]any
	if err := json.Unmarshal(text, &manifest); err != nil {
		return fmt.Errorf("reading manifest.json: %w", err)
	}
	program := b.program("server/paddock")
	manifest["version"] = r.version.semver
	manifest["compatibility"] = map[string]any{"platforms": []string{b.mcpb}}
	manifest["server"] = map[string]any{
		"type": "binary", "entry_point": program.name,
		"mcp_config": map[string]any{"command": "${__dirname}/" + program.name, "args": []string{"mcp"}},
	}
	if text, err = json.MarshalIndent(manifest, "", "  "); err != nil {
		return err
	}
	files, err := r.texts("LICENSE", "NOTICE")
	if err != nil {
		return err
	}
	files = append(files, program, file{"manifest.json", 0o644, append(text, '\n')}, file{"sbom.cdx.json", 0o644, r.boms[b.String()]})
	content, err := packZip(files, r.time)
	if err != nil {
		return err
	}
	return r.write(r.bundleName(b), content)
}

func (r *release) bundleName(b binary) string {
	return fmt.Sprintf("paddock-mcp-%s-%s.mcpb", r.version.semver, b)
}
