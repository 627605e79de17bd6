package broker

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"paddock/internal/bindings"
	"paddock/internal/bindings/stub"
)

// Provide makes a folder hold what a session's programs find at /servers: a folder for
// each of its servers. It is cheap where nothing has changed since the last time. A
// server that cannot be asked for its tools now keeps the files that it has. Only
// one goroutine may provide a folder at a time; programs may read it meanwhile, and
// find a server's old files or its new ones, or none for an instant.
func (b *Broker) Provide(ctx context.Context, s Session, dir string) error {
	wanted := map[string]bool{}
	for _, name := range b.Names(s) {
		one, err := b.find(s, name)
		if err != nil {
			continue // it was let go of just now
		}
		wanted[stub.Package(name)] = true
		tools, err := b.pool.Tools(ctx, one.keyFor(s))
		if err != nil {
			b.config.Log.WarnContext(ctx, "a server cannot be asked for its tools", "server", name, "cause", err)
			continue
		}
		if err := provide(dir, one, tools); err != nil {
			return fmt.Errorf("writing the files of the server %q: %w", name, err)
		}
	}
	there, err := os.ReadDir(dir)
	if err != nil {
		return fmt.Errorf("looking at the servers' files: %w", err)
	}
	for _, entry := range there {
		if !wanted[entry.Name()] {
			if err := os.RemoveAll(filepath.Join(dir, entry.Name())); err != nil {
				return fmt.Errorf("removing what is not a server's any more: %w", err)
			}
		}
	}
	return nil
}

// stamp is the file that names what a server's folder was made of.
const stamp = ".made-of"

func provide(dir string, one *bound, tools []bindings.Tool) error {
	folder := filepath.Join(dir, stub.Package(one.Name))
	made := digestOf(one, tools)
	if was, err := os.ReadFile(filepath.Join(folder, stamp)); err == nil && string(was) == made {
		return nil
	}
	tools = slices.DeleteFunc(slices.Clone(tools), func(t bindings.Tool) bool { return one.Policy.Of(t) == Denied })
	fresh, err := os.MkdirTemp(dir, ".new-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(fresh)
	if err := os.Chmod(fresh, 0o755); err != nil {
		return err
	}
	for _, f := range stub.Generate(one.Name, tools).Files {
		path := filepath.Join(fresh, filepath.FromSlash(f.Path))
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(path, f.Data, 0o644); err != nil {
			return err
		}
	}
	if err := os.WriteFile(filepath.Join(fresh, stamp), []byte(made), 0o644); err != nil {
		return err
	}
	if err := os.RemoveAll(folder); err != nil {
		return err
	}
	return os.Rename(fresh, folder)
}

// digestOf names what a folder is made of, and how.
func digestOf(one *bound, tools []bindings.Tool) string {
	h := sha256.New()
	fmt.Fprintf(h, "1\x00%s\x00%q\n", one.Name, one.Policy)
	texts := map[string]string{}
	for _, t := range tools {
		texts[t.Name] = fmt.Sprintf("%q %q %q %q", t.Title, t.Description, t.Input, t.Output)
	}
	for _, name := range slices.Sorted(maps.Keys(texts)) {
		fmt.Fprintf(h, "%q %s\n", name, texts[name])
	}
	return hex.EncodeToString(h.Sum(nil))
}
