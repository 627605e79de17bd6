package main

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	cdx "github.com/CycloneDX/cyclonedx-go"
	"github.com/package-url/packageurl-go"
)

// bom lists what is in a binary, in CycloneDX's JSON: Go's modules as the binary itself says,
// and what the guests and the ready skills are made of, as their lists of sources say.
func (r *release) bom(b binary) ([]byte, error) {
	components := goModules(b)
	for _, list := range []string{"guest/build/sources.txt", "skills/build/sources.txt"} {
		more, err := debianSources(filepath.Join(r.source, filepath.FromSlash(list)))
		if err != nil {
			return nil, err
		}
		components = append(components, more...)
	}
	more, err := npmModules(filepath.Join(r.source, "guest", "js", "driver", "package-lock.json"))
	if err != nil {
		return nil, err
	}
	components = append(components, more...)
	slices.SortFunc(components, func(a, b cdx.Component) int { return strings.Compare(a.BOMRef, b.BOMRef) })

	sum := sha256.Sum256(b.content)
	self := cdx.Component{
		Type: cdx.ComponentTypeApplication, Name: "paddock", Version: r.version.semver, BOMRef: "paddock",
		Hashes:     &[]cdx.Hash{{Algorithm: cdx.HashAlgoSHA256, Value: hex.EncodeToString(sum[:])}},
		Licenses:   &cdx.Licenses{{License: &cdx.License{ID: license}}},
		Properties: &[]cdx.Property{{Name: "paddock:platform", Value: b.String()}},
	}
	var needs []string
	for _, c := range components {
		needs = append(needs, c.BOMRef)
	}
	list := cdx.NewBOM()
	list.SerialNumber = serial(sum)
	list.Metadata = &cdx.Metadata{Timestamp: r.time.Format(time.RFC3339), Component: &self}
	list.Components = &components
	list.Dependencies = &[]cdx.Dependency{{Ref: self.BOMRef, Dependencies: &needs}}
	var out bytes.Buffer
	if err := cdx.NewBOMEncoder(&out, cdx.BOMFileFormatJSON).SetPretty(true).EncodeVersion(list, cdx.SpecVersion1_6); err != nil {
		return nil, err
	}
	return out.Bytes(), nil
}

// serial is a UUID (version 8) that follows from the binary: the same binary has the same list.
func serial(sum [32]byte) string {
	id := sum[:16]
	id[6], id[8] = id[6]&0x0f|0x80, id[8]&0x3f|0x80
	return fmt.Sprintf("urn:uuid:%x-%x-%x-%x-%x", id[:4], id[4:6], id[6:8], id[8:10], id[10:])
}

// library is a component that has been taken in.
func library(url *packageurl.PackageURL, name, version string) cdx.Component {
	return cdx.Component{Type: cdx.ComponentTypeLibrary, Name: name, Version: version, PackageURL: url.ToString(), BOMRef: url.ToString()}
}

// goModules are those of the binary, Go's own library among them.
func goModules(b binary) (all []cdx.Component) {
	std := strings.TrimPrefix(b.info.GoVersion, "go")
	all = append(all, library(packageurl.NewPackageURL("golang", "", "std", std, nil, ""), "std", std))
	for _, m := range b.info.Deps {
		if m.Replace != nil {
			m = m.Replace
		}
		c := library(packageurl.NewPackageURL("golang", path.Dir(m.Path), path.Base(m.Path), m.Version, nil, ""), m.Path, m.Version)
		if tree, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(m.Sum, "h1:")); err == nil && len(tree) == sha256.Size {
			c.Hashes = &[]cdx.Hash{{Algorithm: cdx.HashAlgoSHA256, Value: hex.EncodeToString(tree)}}
		}
		all = append(all, c)
	}
	return all
}

// pooled is a file of a Debian mirror: pool/main/z/zlib/zlib_1.3.1.orig.tar.gz.
var pooled = regexp.MustCompile(`^pool/main/[^/]+/[^/]+/([^_/]+)_(.+?)(\.orig\.tar\.\w+|_all\.deb)$`)

// debianSources reads a list of sources: digest, path in the pool, where else it is (-).
func debianSources(list string) (all []cdx.Component, err error) {
	text, err := os.ReadFile(list)
	if err != nil {
		return nil, err
	}
	for lines := bufio.NewScanner(bytes.NewReader(text)); lines.Scan(); {
		line := lines.Text()
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		fields := strings.Fields(line)
		var m []string
		if len(fields) == 3 {
			m = pooled.FindStringSubmatch(fields[1])
		}
		if m == nil {
			return nil, fmt.Errorf("%s: the line %q is not DIGEST PATH UPSTREAM", list, line)
		}
		arch := "source"
		if strings.HasSuffix(m[3], ".deb") {
			arch = "all"
		}
		c := library(packageurl.NewPackageURL("deb", "debian", m[1], m[2], packageurl.QualifiersFromMap(map[string]string{"arch": arch}), ""), m[1], m[2])
		c.Hashes = &[]cdx.Hash{{Algorithm: cdx.HashAlgoSHA256, Value: fields[0]}}
		if fields[2] != "-" {
			c.ExternalReferences = &[]cdx.ExternalReference{{Type: cdx.ERTypeDistribution, URL: fields[2]}}
		}
		all = append(all, c)
	}
	return all, nil
}

// npmModules are those of a package-lock.json.
func npmModules(lock string) (all []cdx.Component, err error) {
	text, err := os.ReadFile(lock)
	if err != nil {
		return nil, err
	}
	var read struct {
		Packages map[string]struct{ Version, Integrity, License string }
	}
	if err := json.Unmarshal(text, &read); err != nil {
		return nil, fmt.Errorf("reading %s: %w", lock, err)
	}
	for _, at := range slices.Sorted(maps.Keys(read.Packages)) {
		i := strings.LastIndex(at, "node_modules/")
		if i < 0 {
			continue // what the list is of
		}
		name, p := at[i+len("node_modules/"):], read.Packages[at]
		scope, short := path.Split(name)
		c := library(packageurl.NewPackageURL("npm", strings.TrimSuffix(scope, "/"), short, p.Version, nil, ""), name, p.Version)
		if sum, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(p.Integrity, "sha512-")); err == nil && len(sum) > 0 {
			c.Hashes = &[]cdx.Hash{{Algorithm: cdx.HashAlgoSHA512, Value: hex.EncodeToString(sum)}}
		}
		if p.License != "" {
			c.Licenses = &cdx.Licenses{{Expression: p.License}}
		}
		all = append(all, c)
	}
	return all, nil
}
