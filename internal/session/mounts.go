package session

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"

	"paddock/internal/fault"
	"paddock/internal/sandbox"
	"paddock/internal/workspace"
)

// What programs find and ask beyond their session is given by functions of the
// Config's: a session does not know what it is.

// ErrSuspended is why the ctx of a call ends that waits for a person when its run is
// suspended: the call is made again, with the same number. See [Run.Suspend].
var ErrSuspended = sandbox.ErrWaiting

// Run is whose call Tools.Call answers.
type Run struct {
	Owner     Owner
	Session   ID
	Execution string
	// Put writes a file that shows what the run was given: it belongs to the run, as
	// with Request.Ended. It may be called from several goroutines.
	Put PutFunc
	// Suspend says that this call waits for a person, and why, in a few characters that
	// the result gives (Result.Waiting); "" says that it does so no more. When all calls
	// that a program waits for have done nothing else for Config.WaitInPlace, the run is
	// suspended where it can be: the ctx of these calls ends because of [ErrSuspended],
	// nobody is given their answers, and they are asked again when the run goes on. It
	// may be called from any goroutine until the call is answered.
	Suspend func(reason string)
	// InBackground says that this call is none of a tool: Result.ToolCalls does not count it. It
	// is called once.
	InBackground func()
}

// Folder is a folder that programs see and cannot change.
type Folder struct {
	// Name is the folder's in the session's folder; programs see it as "/" + Name. It
	// is a word of letters that no other folder has.
	Name string
	// Refresh makes dir hold what the session's programs shall find. It is called before
	// each run, by one goroutine at a time for one session. It should be cheap where
	// nothing has changed; what it makes can be read by anybody. After an error, which
	// is logged, the program runs with what is there.
	Refresh func(ctx context.Context, owner Owner, id ID, dir string) error
	// Aliases are further places at which programs find it, absolute and clean.
	Aliases []string
	// Machines says that only sessions with machines are shown it.
	Machines bool
	// Shared says that all sessions of an owner find the same, so that one folder does
	// for all of them, beside their own, where the isolation can show it: not where a
	// session has a machine, whose folders are there before anybody knows whose it is.
	// Fill is called for that with an empty id, by any number of goroutines and
	// processes at once and while programs read. The folder stays when sessions end.
	Shared bool
}

// checkFolders tells what is wrong with a Config's.
func checkFolders(all []Folder) error {
	seen := map[string]bool{workspaceFolder: true, tmpFolder: true, "app": true}
	for _, f := range all {
		if f.Refresh == nil || seen[f.Name] || f.Name == "" {
			return fmt.Errorf("session: the folder %q cannot be shown to programs", f.Name)
		}
		for _, r := range f.Name {
			if r < 'a' || r > 'z' {
				return fmt.Errorf("session: the folder %q cannot be shown to programs", f.Name)
			}
		}
		seen[f.Name] = true
	}
	return nil
}

// mounts are the folders of a Config that one session's programs see and cannot change:
// the session's own, and those that all sessions of the owner are shown. It has no state of
// its own. What it makes lies on disk: refresh is for the first in the queue, create and
// adopt for who is alone with the session's folder.
type mounts struct {
	key
	own, shared string // folders of the session's, and of its owner's
	folders     []mount
	uid         int // as whom guests look; zero: as us
	log         *slog.Logger
}

// mount is one of mounts.
type mount struct {
	Folder
	shared bool // all sessions of the owner are shown it
}

// newMounts gives those that a session in a residence is shown.
func newMounts(s *session, of traits) mounts {
	m := mounts{key: s.key, own: s.dir, shared: s.manager.local.Shared(string(s.owner)), log: s.manager.log}
	m.uid, _ = fileOwner(s.backend)
	for _, f := range s.manager.config.Folders {
		if shown, shared := of.shows(f); shown {
			m.folders = append(m.folders, mount{f, shared})
		}
	}
	return m
}

// names are those of the session's folders that its programs see.
func (m *mounts) names() []string {
	all := []string{workspaceFolder, tmpFolder}
	for _, f := range m.folders {
		all = append(all, f.Name)
	}
	return all
}

// path is where a folder lies. A backend has to know the one of what an owner's sessions
// share (wasm.Config.SharedDir).
func (m *mounts) path(f mount) string {
	if f.shared {
		return filepath.Join(m.shared, f.Name)
	}
	return filepath.Join(m.own, f.Name)
}

// readOnly describes them for a sandbox.
func (m *mounts) readOnly() (all []sandbox.Mount) {
	for _, f := range m.folders {
		all = append(all, sandbox.Mount{Guest: "/" + f.Name, Aliases: f.Aliases, Host: m.path(f), ReadOnly: true})
	}
	return all
}

// create makes them where they are missing: what they hold can be made again, so nobody
// has kept them.
func (m *mounts) create() error {
	for _, f := range m.folders {
		if f.shared {
			// A session that an earlier paddock made has one of its own.
			if err := workspace.RemoveAll(filepath.Join(m.own, f.Name)); err != nil {
				return err
			}
			if err := m.makeShared(); err != nil {
				return err
			}
		}
		if err := makeVisible(m.path(f)); err != nil {
			return err
		}
	}
	return nil
}

// makeShared makes the folder that holds what the owner's sessions share. Sessions of
// several processes may do so at once.
func (m *mounts) makeShared() error {
	if err := os.MkdirAll(filepath.Dir(m.shared), 0o700); err != nil {
		return err
	}
	if m.uid != 0 {
		return makeVisible(m.shared) // the guest's user opens it on the way
	}
	return os.MkdirAll(m.shared, 0o700)
}

// refresh brings them up to date for a program.
func (m *mounts) refresh(ctx context.Context, program string) {
	ctx = context.WithValue(ctx, programKey{}, program)
	for _, f := range m.folders {
		id := m.id
		if f.shared {
			id = ""
		}
		_, err := guard("filling a folder", func() (struct{}, error) { return struct{}{}, f.Refresh(ctx, m.owner, id, m.path(f)) })
		if err != nil && ctx.Err() == nil {
			m.log.WarnContext(ctx, "a folder that programs see is not up to date", "session", m.id, "folder", f.Name, "cause", fault.CauseOf(err))
		}
	}
}

// adopt has the session's folders be those of a slot, in whose machine they are; folder
// gives where one lies.
func (m *mounts) adopt(folder func(name string) string) error {
	for _, f := range m.folders {
		dir := filepath.Join(m.own, f.Name)
		if err := workspace.RemoveAll(dir); err != nil {
			return err
		}
		if err := os.Rename(folder(f.Name), dir); err != nil {
			return err
		}
	}
	return nil
}

// programKey is under what the context of a program's mounts has the program that is to run.
type programKey struct{}

// ProgramOf is the program for which a [Folder] is filled; empty: for none.
func ProgramOf(ctx context.Context) string {
	program, _ := ctx.Value(programKey{}).(string)
	return program
}

// makeVisible makes a folder that everybody may read, where it is missing.
func makeVisible(dir string) error {
	if err := os.Mkdir(dir, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return os.Chmod(dir, 0o755) // whatever the umask is
}
