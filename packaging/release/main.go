// Command release packs paddock for the ways in which it is installed: an archive for each
// platform, packages for npm and PyPI, packages for Debian, an image, and MCP bundles, with
// a list of what is in them, checksums, and the entry for the MCP registry.
//
//	release [-out DIR] [-source DIR] -version V PLATFORM=BINARY...
//
// PLATFORM is GOOS-GOARCH. The same binaries, version and time give the same files, byte for
// byte; the time is SOURCE_DATE_EPOCH, in seconds. dpkg-deb has to be on this machine.
//
// What is published says who publishes it: PADDOCK_REGISTRY_NAME is the server's name in the
// MCP registry, PADDOCK_RELEASE_URL the folder where the files will be, PADDOCK_IMAGE_NAME
// the image's repository.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

func main() {
	if err := run(context.Background(), os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "paddock: error:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("release", flag.ContinueOnError)
	out := flags.String("out", "dist", "write the files into `DIR`")
	source := flags.String("source", ".", "paddock's source is in `DIR`")
	version := flags.String("version", "", "the release is called `V`, as 1.2.3")
	if err := flags.Parse(args); err != nil {
		return err
	}
	r := &release{
		source: *source, out: *out,
		name: os.Getenv("PADDOCK_REGISTRY_NAME"), url: strings.TrimSuffix(os.Getenv("PADDOCK_RELEASE_URL"), "/"), image: os.Getenv("PADDOCK_IMAGE_NAME"),
	}
	var err error
	if r.version, err = readVersion(*version); err != nil {
		return err
	}
	if r.time, err = releaseTime(os.Getenv("SOURCE_DATE_EPOCH")); err != nil {
		return err
	}
	for _, arg := range flags.Args() {
		name, path, _ := strings.Cut(arg, "=")
		p, err := findPlatform(name)
		if err != nil {
			return err
		}
		b, err := readBinary(p, path)
		if err != nil {
			return err
		}
		r.binaries = append(r.binaries, b)
	}
	if len(r.binaries) == 0 {
		return fmt.Errorf("there is nothing to pack: give PLATFORM=BINARY, as linux-amd64=bin/paddock")
	}
	if err := os.MkdirAll(r.out, 0o755); err != nil {
		return err
	}
	return r.pack(ctx)
}

// releaseTime is the time that all packed files get.
func releaseTime(epoch string) (time.Time, error) {
	seconds, err := strconv.ParseInt(epoch, 10, 64)
	if err != nil {
		return time.Time{}, fmt.Errorf("SOURCE_DATE_EPOCH is %q, want the release's time in seconds: git log -1 --format=%%ct prints the commit's", epoch)
	}
	return time.Unix(seconds, 0).UTC(), nil
}

// write writes one file of the release.
func (r *release) write(name string, content []byte) error {
	if err := os.WriteFile(filepath.Join(r.out, name), content, 0o644); err != nil {
		return err
	}
	r.files = append(r.files, name)
	return nil
}
