package main

import (
	"debug/buildinfo"
	"fmt"
	"os"
	"runtime"
	"strings"
)

// platform is one that paddock is packed for, and what others call it.
type platform struct {
	goos, goarch string
	npm          string   // as process.platform-process.arch
	wheel        []string // the tags of a wheel
	deb          string   // the architecture; empty: there is no package
	mcpb         string   // the platform in a bundle's manifest
	exe          string   // what the name of a program ends with
}

// A static binary runs with every C library, so its wheel fits manylinux and musllinux.
// Go supports macOS from version 12 on.
var platforms = []platform{
	{"linux", "amd64", "linux-x64", []string{"manylinux_2_17_x86_64", "manylinux2014_x86_64", "musllinux_1_1_x86_64"}, "amd64", "linux", ""},
	{"linux", "arm64", "linux-arm64", []string{"manylinux_2_17_aarch64", "manylinux2014_aarch64", "musllinux_1_1_aarch64"}, "arm64", "linux", ""},
	{"darwin", "arm64", "darwin-arm64", []string{"macosx_12_0_arm64"}, "", "darwin", ""},
	{"darwin", "amd64", "darwin-x64", []string{"macosx_12_0_x86_64"}, "", "darwin", ""},
	{"windows", "amd64", "win32-x64", []string{"win_amd64"}, "", "win32", ".exe"},
}

func (p platform) String() string { return p.goos + "-" + p.goarch }

func findPlatform(name string) (platform, error) {
	var known []string
	for _, p := range platforms {
		if p.String() == name {
			return p, nil
		}
		known = append(known, p.String())
	}
	return platform{}, fmt.Errorf("the platform %q is not known; these are: %s", name, strings.Join(known, ", "))
}

// binary is paddock as it was built for a platform.
type binary struct {
	platform
	path    string
	content []byte
	info    *buildinfo.BuildInfo
}

func readBinary(p platform, path string) (binary, error) {
	content, err := os.ReadFile(path)
	if err != nil {
		return binary{}, fmt.Errorf("reading paddock for %s: %w", p, err)
	}
	info, err := buildinfo.ReadFile(path)
	if err != nil {
		return binary{}, fmt.Errorf("%s is not a program that Go has built: %w", path, err)
	}
	b := binary{p, path, content, info}
	if goos, goarch := b.setting("GOOS"), b.setting("GOARCH"); goos != p.goos || goarch != p.goarch {
		return binary{}, fmt.Errorf("%s was built for %s-%s, not for %s", path, goos, goarch, p)
	}
	return b, nil
}

func (b binary) setting(key string) string {
	for _, s := range b.info.Settings {
		if s.Key == key {
			return s.Value
		}
	}
	return ""
}

// program is the binary as a file of an archive.
func (b binary) program(name string) file { return file{name + b.exe, 0o755, b.content} }

// here is the binary that runs on this machine; false: there is none.
func (r *release) here() (binary, bool) {
	for _, b := range r.binaries {
		if b.goos == runtime.GOOS && b.goarch == runtime.GOARCH {
			return b, true
		}
	}
	return binary{}, false
}
