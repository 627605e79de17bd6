// Command bundle finishes an MCPB bundle that mcpb has packed, and describes it
// for the MCP registry:
//
//	bundle PACKED BUNDLE TEMPLATE SERVER SCHEMA
//
// It writes the archive PACKED to BUNDLE so that the same content always gives
// the same bytes, and TEMPLATE to the file SERVER with the bundle's digest in
// it, which has to fit the JSON schema SCHEMA.
package main

import (
	"archive/zip"
	"bytes"
	"cmp"
	"compress/flate"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"

	"github.com/google/jsonschema-go/jsonschema"
)

func main() {
	if len(os.Args) != 6 {
		fmt.Fprintln(os.Stderr, "usage: bundle PACKED BUNDLE TEMPLATE SERVER SCHEMA")
		os.Exit(2)
	}
	if err := run(os.Args[1], os.Args[2], os.Args[3], os.Args[4], os.Args[5]); err != nil {
		fmt.Fprintln(os.Stderr, "paddock: error:", err)
		os.Exit(1)
	}
}

func run(packed, bundle, template, server, schema string) error {
	archive, err := zip.OpenReader(packed)
	if err != nil {
		return fmt.Errorf("opening what mcpb packed: %w", err)
	}
	defer archive.Close()
	var b bytes.Buffer
	if err := normalize(&b, &archive.Reader); err != nil {
		return fmt.Errorf("writing the bundle: %w", err)
	}
	description, err := os.ReadFile(template)
	if err != nil {
		return err
	}
	description = describe(description, b.Bytes())
	definition, err := os.ReadFile(schema)
	if err != nil {
		return err
	}
	if err := validate(definition, description); err != nil {
		return fmt.Errorf("checking server.json: %w", err)
	}
	if err := os.WriteFile(bundle, b.Bytes(), 0o644); err != nil {
		return err
	}
	return os.WriteFile(server, description, 0o644)
}

// normalize writes an archive in the order of names, with modes and without
// times.
func normalize(w io.Writer, archive *zip.Reader) error {
	files := slices.SortedFunc(slices.Values(archive.File), func(a, b *zip.File) int { return cmp.Compare(a.Name, b.Name) })
	out := zip.NewWriter(w)
	out.RegisterCompressor(zip.Deflate, func(w io.Writer) (io.WriteCloser, error) { return flate.NewWriter(w, flate.BestCompression) })
	for _, f := range files {
		h := &zip.FileHeader{Name: f.Name, Method: zip.Deflate}
		h.SetMode(0o644 | f.Mode().Perm()&0o111)
		from, err := f.Open()
		if err != nil {
			return err
		}
		to, err := out.CreateHeader(h)
		if err == nil {
			_, err = io.Copy(to, from)
		}
		from.Close()
		if err != nil {
			return err
		}
	}
	return out.Close()
}

// describe puts the bundle's digest into its description.
func describe(template, bundle []byte) []byte {
	return bytes.ReplaceAll(template, []byte("@SHA256@"), fmt.Appendf(nil, "%x", sha256.Sum256(bundle)))
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
