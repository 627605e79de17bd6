package skills_test

import (
	"archive/zip"
	"encoding/xml"
	"errors"
	"io"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strings"
	"testing"
)

// wellFormed looks at the documents that a program left, with other programs than
// those that wrote them: Go's own at the Office files, and qpdf at PDFs, where it is
// installed.
func wellFormed(t *testing.T, dir string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	qpdf, _ := exec.LookPath("qpdf")
	for _, e := range entries {
		name := filepath.Join(dir, e.Name())
		switch kind := filepath.Ext(e.Name()); {
		case strings.HasPrefix(e.Name(), "no."):
		case kind == ".docx", kind == ".pptx", kind == ".xlsx":
			office(t, name)
		case kind == ".pdf" && qpdf != "" && e.Name() != "locked.pdf":
			if out, err := exec.CommandContext(t.Context(), qpdf, "--check", name).CombinedOutput(); err != nil {
				t.Errorf("%s: %v\n%s", e.Name(), err, tail(out))
			}
		}
	}
}

// office checks that a file is what the Open Packaging Conventions say: every part
// has a type, XML is well formed, and whatever is referred to is there.
func office(t *testing.T, name string) {
	t.Helper()
	z, err := zip.OpenReader(name)
	if err != nil {
		t.Errorf("%s: %v", name, err)
		return
	}
	defer z.Close()
	parts := map[string][]byte{}
	for _, f := range z.File {
		if _, twice := parts[f.Name]; twice {
			t.Errorf("%s has %s twice", filepath.Base(name), f.Name)
		}
		parts[f.Name] = content(t, f)
	}
	known := contentTypes(t, parts["[Content_Types].xml"])
	for part, data := range parts {
		if part != "[Content_Types].xml" && known["/"+part] == "" && known[strings.ToLower(strings.TrimPrefix(path.Ext(part), "."))] == "" && !strings.HasPrefix(part, "custom/") {
			t.Errorf("%s: %s has no type", filepath.Base(name), part)
		}
		if ext := path.Ext(part); ext == ".xml" || ext == ".rels" {
			elements(t, filepath.Base(name)+": "+part, data, func(e xml.StartElement) {
				if e.Name.Local == "Relationship" && attribute(e, "TargetMode") != "External" {
					refers(t, filepath.Base(name), part, attribute(e, "Target"), parts)
				}
			})
		}
	}
	for part := range known {
		if data, ok := strings.CutPrefix(part, "/"); ok && parts[data] == nil {
			t.Errorf("%s: there is a type of %s, which is not there", filepath.Base(name), part)
		}
	}
}

func content(t *testing.T, f *zip.File) []byte {
	t.Helper()
	r, err := f.Open()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	data, err := io.ReadAll(r)
	if err != nil {
		t.Errorf("%s: %v", f.Name, err)
	}
	return data
}

// contentTypes are those of parts ("/word/document.xml") and of endings ("png").
func contentTypes(t *testing.T, data []byte) map[string]string {
	t.Helper()
	known := map[string]string{}
	elements(t, "types", data, func(e xml.StartElement) {
		switch e.Name.Local {
		case "Default":
			known[strings.ToLower(attribute(e, "Extension"))] = attribute(e, "ContentType")
		case "Override":
			known[attribute(e, "PartName")] = attribute(e, "ContentType")
		}
	})
	return known
}

func refers(t *testing.T, file, from, target string, parts map[string][]byte) {
	t.Helper()
	at := path.Join(path.Dir(path.Dir(from)), target)
	if strings.HasPrefix(target, "/") {
		at = target[1:]
	}
	if parts[at] == nil {
		t.Errorf("%s: %s refers to %s, which is not there", file, from, target)
	}
}

func elements(t *testing.T, what string, data []byte, each func(xml.StartElement)) {
	t.Helper()
	d := xml.NewDecoder(strings.NewReader(string(data)))
	for {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			return
		}
		if err != nil {
			t.Errorf("%s: %v", what, err)
			return
		}
		if e, ok := token.(xml.StartElement); ok {
			each(e)
		}
	}
}

func attribute(e xml.StartElement, name string) string {
	for _, a := range e.Attr {
		if a.Name.Local == name {
			return a.Value
		}
	}
	return ""
}
