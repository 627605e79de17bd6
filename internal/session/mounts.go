package session

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"

	"paddock/internal/fault"
	"paddock/internal/pool"
	"paddock/internal/sandbox"
	"paddock/internal/session/hostcalls"
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

// folders are those of Config.Folders that the session is shown.
func (s *session) folders() []Folder {
	hidden := func(f Folder) bool {
		shown, _ := s.residence.shows(f)
		return !shown
	}
	all := s.manager.config.Folders
	if !slices.ContainsFunc(all, hidden) {
		return all
	}
	return slices.DeleteFunc(slices.Clone(all), hidden)
}

// readOnlyMounts are the folders that programs see and cannot change.
func (s *session) readOnlyMounts() (mounts []sandbox.Mount) {
	for _, f := range s.folders() {
		mounts = append(mounts, sandbox.Mount{
			Guest: "/" + f.Name, Aliases: f.Aliases, Host: filepath.Join(s.mountFolder(f), f.Name), ReadOnly: true,
		})
	}
	return mounts
}

// isShared tells whether the session is shown a folder that is its owner's.
func (s *session) isShared(f Folder) bool {
	_, shared := s.residence.shows(f)
	return shared
}

// mountFolder is where a folder lies. A backend has to know the one of what an owner's
// sessions share (wasm.Config.SharedDir).
func (s *session) mountFolder(f Folder) string {
	if s.isShared(f) {
		return s.manager.local.Shared(string(s.owner))
	}
	return s.dir
}

// createMounts makes those folders where they are missing: what they hold can be made
// again, so nobody has kept them. The caller is alone with the session's folder.
func (s *session) createMounts() error {
	s.mu.Lock()
	machine := s.record.Settings.Machine
	s.mu.Unlock()
	if err := makeScripts(s.dir, machine); err != nil {
		return err
	}
	for _, f := range s.folders() {
		if s.isShared(f) {
			// A session that an earlier paddock made has one of its own.
			if err := workspace.RemoveAll(filepath.Join(s.dir, f.Name)); err != nil {
				return err
			}
			if err := s.makeShared(); err != nil {
				return err
			}
		}
		if err := makeVisible(filepath.Join(s.mountFolder(f), f.Name)); err != nil {
			return err
		}
	}
	return nil
}

// makeShared makes the folder that holds what the owner's sessions share. Sessions of
// several processes may do so at once.
func (s *session) makeShared() error {
	dir := s.manager.local.Shared(string(s.owner))
	if err := os.MkdirAll(filepath.Dir(dir), 0o700); err != nil {
		return err
	}
	if uid, _ := fileOwner(s.backend); uid != 0 {
		return makeVisible(dir) // the guest's user opens it on the way
	}
	return os.MkdirAll(dir, 0o700)
}

// makeVisible makes a folder that everybody may read, where it is missing.
func makeVisible(dir string) error {
	if err := os.Mkdir(dir, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return os.Chmod(dir, 0o755) // whatever the umask is
}

// programKey is under what the context of a Fill has the program that is to run.
type programKey struct{}

// ProgramOf is the program for which a [Folder] is filled; empty: for none.
func ProgramOf(ctx context.Context) string {
	program, _ := ctx.Value(programKey{}).(string)
	return program
}

// refreshMounts brings those folders up to date. It is the caller's turn.
func (s *session) refreshMounts(ctx context.Context) {
	for _, f := range s.folders() {
		id := s.id
		if s.isShared(f) {
			id = ""
		}
		_, err := guard("filling a folder", func() (struct{}, error) {
			return struct{}{}, f.Refresh(ctx, s.owner, id, filepath.Join(s.mountFolder(f), f.Name))
		})
		if err != nil && ctx.Err() == nil {
			s.manager.log.WarnContext(ctx, "a folder that programs see is not up to date", "session", s.id, "folder", f.Name, "cause", fault.CauseOf(err))
		}
	}
}

// adoptMounts has the session's folders be the slot's, in whose machine they are.
func (s *session) adoptMounts(folder func(name string) string) error {
	for _, f := range s.folders() {
		dir := filepath.Join(s.dir, f.Name)
		if err := workspace.RemoveAll(dir); err != nil {
			return err
		}
		if err := os.Rename(folder(f.Name), dir); err != nil {
			return err
		}
	}
	return nil
}

// adoptOrCreateMounts has a new session have them; from nil: there is no slot.
func (s *session) adoptOrCreateMounts(from *pool.Slot) error {
	if from != nil {
		return s.adoptMounts(from.Folder)
	}
	return s.createMounts()
}

// answering gives what answers the calls of a run's program; nil: nothing does.
func (r *run) answering() hostcalls.Answer {
	s, t := r.s, r.t
	tools := s.manager.config.Tools
	if tools == nil {
		return nil
	}
	return func(ctx context.Context, c sandbox.Call, suspend func(string)) (answer []byte) {
		defer func() {
			if p := recover(); p != nil {
				answer = nil
				s.manager.log.ErrorContext(ctx, "answering a call panicked", "session", s.id, "execution", t.execution, "panic", fmt.Sprint(p), "stack", string(debug.Stack()))
			}
		}()
		return tools.Call(ctx, Run{Owner: s.owner, Session: s.id, Execution: t.execution, Put: s.putFile, Suspend: suspend, InBackground: r.calls.CountBackground}, c)
	}
}

// notifyRemoved tells the observers that the session is no more.
func (s *session) notifyRemoved() {
	for _, o := range s.manager.config.Observers {
		_, err := guard("forgetting a session", func() (struct{}, error) { o.Removed(s.owner, s.id); return struct{}{}, nil })
		if err != nil {
			s.manager.log.Error("a session's resources were not released", "session", s.id, "cause", fault.CauseOf(err))
		}
	}
}
