package main

import (
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"strings"
)

// A command that is called as the program is, beside the one that is called as the package,
// which uvx looks for.
const (
	shortUnix    = "#!/bin/sh\nexec \"${0%/*}/paddock-sandbox\" \"$@\"\n"
	shortWindows = "@\"%~dp0paddock-sandbox.exe\" %*\r\n"
)

// packWheel writes the wheel for one platform: the binary, which pip puts among the scripts
// of an environment, and no Python.
func (r *release) packWheel(b binary) error {
	const module = "paddock_sandbox"
	legal, err := r.texts("LICENSE", "NOTICE")
	if err != nil {
		return err
	}
	readme, err := r.texts("README.md")
	if err != nil {
		return err
	}
	short := file{"paddock", 0o755, []byte(shortUnix)}
	if b.goos == "windows" {
		short = file{"paddock.cmd", 0o755, []byte(shortWindows)}
	}
	info := module + "-" + r.version.python + ".dist-info"
	files := below(module+"-"+r.version.python+".data/scripts", []file{b.program(called), short})
	files = append(files, below(info+"/licenses", legal)...)
	files = append(files,
		file{info + "/METADATA", 0o644, r.wheelMetadata(readme[0].content)},
		file{info + "/WHEEL", 0o644, wheelTags(b)},
		file{info + "/sboms/paddock.cdx.json", 0o644, r.boms[b.String()]},
	)
	var record strings.Builder
	for _, f := range sorted(files) {
		sum := sha256.Sum256(f.content)
		fmt.Fprintf(&record, "%s,sha256=%s,%d\n", f.name, base64.RawURLEncoding.EncodeToString(sum[:]), len(f.content))
	}
	fmt.Fprintf(&record, "%s/RECORD,,\n", info)
	files = append(files, file{info + "/RECORD", 0o644, []byte(record.String())})
	content, err := packZip(files, r.time)
	if err != nil {
		return err
	}
	return r.write(fmt.Sprintf("%s-%s-py3-none-%s.whl", module, r.version.python, strings.Join(b.wheel, ".")), content)
}

// wheelMetadata has the README as the package's page. The MCP registry looks there for the
// name by which it knows the owner.
func (r *release) wheelMetadata(readme []byte) []byte {
	var m strings.Builder
	for _, line := range [][2]string{
		{"Metadata-Version", "2.4"}, {"Name", called}, {"Version", r.version.python}, {"Summary", description},
		{"License-Expression", license}, {"License-File", "LICENSE"}, {"License-File", "NOTICE"},
		{"Keywords", "mcp,sandbox,python,javascript,wasm"}, {"Description-Content-Type", "text/markdown"},
	} {
		fmt.Fprintf(&m, "%s: %s\n", line[0], line[1])
	}
	m.WriteByte('\n')
	if r.name != "" {
		fmt.Fprintf(&m, "<!-- mcp-name: %s -->\n\n", r.name)
	}
	m.Write(readme)
	return []byte(m.String())
}

func wheelTags(b binary) []byte {
	var w strings.Builder
	w.WriteString("Wheel-Version: 1.0\nGenerator: paddock\nRoot-Is-Purelib: false\n")
	for _, tag := range b.wheel {
		fmt.Fprintf(&w, "Tag: py3-none-%s\n", tag)
	}
	return []byte(w.String())
}
