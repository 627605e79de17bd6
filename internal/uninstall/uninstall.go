// Package uninstall finds what paddock has on a machine for its user, and removes it.
//
// [Find] changes nothing; [Item.Remove] removes one thing. Nothing here reads the
// environment, which comes in as a [Place].
package uninstall

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"paddock/internal/lock"
	"paddock/internal/setup"
	"paddock/internal/workspace"
)

// Place is where paddock keeps things.
type Place struct {
	StateDir, CacheDir string
	// ConfigFile is the user's configuration; empty: there is none.
	ConfigFile string
	// Program is the file that runs.
	Program string
	// Clients is the machine as MCP clients see it, and Entry what paddock is called there.
	Clients setup.Place
	Entry   string
	// Key says who has the key of the secrets, if that is not in the state folder.
	Key string
}

// Action is what happens to an item.
type Action string

// The actions.
const (
	Remove Action = "remove"
	Keep   Action = "keep"    // it is the user's work
	ByHand Action = "by-hand" // another program has to remove it
)

// Item is one thing that is there.
type Item struct {
	What   string `json:"what"`
	Path   string `json:"path,omitempty"`
	Bytes  int64  `json:"bytes,omitempty"`
	Action Action `json:"action"`
	Hint   string `json:"hint,omitempty"` // what to do by hand, or how to have it removed

	remove func() error
}

// Remove removes the item, where that is its action.
func (i Item) Remove() error {
	if i.Action != Remove {
		return nil
	}
	return i.remove()
}

// Find lists what is there. State and configuration are removed only if withState says so.
// The program comes last, so that the rest can be tried again.
func Find(p Place, withState bool) (items []Item) {
	items = entries(p)
	if info, err := os.Stat(p.CacheDir); err == nil && info.IsDir() {
		items = append(items, Item{
			What: "compiled interpreters and downloads", Path: p.CacheDir, Bytes: size(p.CacheDir), Action: Remove,
			remove: func() error { return removeCache(p.CacheDir) },
		})
	}
	kept := func(i Item) Item {
		if !withState {
			i.Action, i.Hint = Keep, "--state removes it"
		}
		return i
	}
	if isState(p.StateDir) {
		items = append(items, kept(Item{
			What: "sessions, tokens, secrets and images", Path: p.StateDir, Bytes: size(p.StateDir), Action: Remove,
			remove: func() error { return workspace.RemoveAll(p.StateDir) },
		}))
		if p.Key != "" && withState {
			items = append(items, Item{What: "the key of the secrets", Path: p.Key, Action: ByHand, Hint: "remove paddock's entry there: without the state it opens nothing"})
		}
	}
	if info, err := os.Stat(p.ConfigFile); err == nil && info.Mode().IsRegular() {
		items = append(items, kept(Item{
			What: "the configuration", Path: p.ConfigFile, Bytes: info.Size(), Action: Remove,
			remove: func() error { return gone(os.Remove(p.ConfigFile)) },
		}))
	}
	if p.Program != "" {
		items = append(items, program(p.Program, p.Clients.GOOS))
	}
	return items
}

// Running reports whether a process works in a state folder.
func Running(stateDir string) bool { return lock.Alive(stateDir) }

// entries are those of clients' configurations.
func entries(p Place) (items []Item) {
	for _, name := range setup.Names() {
		client := setup.Find(name)
		file, err := client.File(p.Clients, setup.User)
		if err != nil {
			continue // it has none here
		}
		edit := func(old []byte) ([]byte, error) { return client.Remove(old, p.Entry) }
		i := Item{What: "the entry " + p.Entry + " of " + client.Title, Path: file, Action: Remove, remove: func() error {
			_, err := setup.Update(file, 0o600, edit)
			return err
		}}
		old, err := os.ReadFile(file)
		if err != nil || !strings.Contains(string(old), p.Entry) {
			continue
		}
		changed, err := edit(old)
		switch {
		case err != nil:
			i.Action, i.Hint = ByHand, "the file cannot be read as "+client.Title+" reads it: remove the entry if it is there"
		case string(changed) == string(old):
			continue
		}
		items = append(items, i)
	}
	return items
}

// isState reports whether a folder has paddock's state: another one is never removed.
func isState(dir string) bool {
	info, err := os.Stat(filepath.Join(dir, "format"))
	return err == nil && info.Mode().IsRegular()
}

// cached are the names of what paddock keeps in a cache folder, with linux-probe-….
var cached = map[string]bool{"compiled": true, "images": true, "native": true, "packages": true}

// removeCache removes what paddock keeps in a cache folder. Other files in it stay, and the
// folder with them.
func removeCache(dir string) error {
	all, err := os.ReadDir(dir)
	if err != nil {
		return gone(err)
	}
	for _, e := range all {
		if name := e.Name(); cached[name] || strings.HasPrefix(name, "linux-probe-") {
			err = errors.Join(err, workspace.RemoveAll(filepath.Join(dir, name)))
		}
	}
	_ = os.Remove(dir) // not where somebody else has files there
	return err
}

// gone is err, unless it says that what is to be removed is not there.
func gone(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// size is how much the files of a folder take; what cannot be read counts nothing.
func size(dir string) (sum int64) {
	_ = filepath.WalkDir(dir, func(_ string, d fs.DirEntry, err error) error {
		if err != nil {
			return nil
		}
		if info, err := d.Info(); err == nil && info.Mode().IsRegular() {
			sum += info.Size()
		}
		return nil
	})
	return sum
}
