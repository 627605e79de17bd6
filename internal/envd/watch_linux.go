package envd

import (
	"crypto/rand"
	"errors"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"github.com/fsnotify/fsnotify"
)

// mostEvents bounds what a watcher keeps until it is asked, and mostWatchers how many there
// are of those.
const (
	mostEvents   = 10_000
	mostWatchers = 128
)

type watchRequest struct {
	Path         string `json:"path"`
	Recursive    bool   `json:"recursive"`
	IncludeEntry bool   `json:"includeEntry"`
}

// change is an event of the file system.
type change struct {
	Name  string `json:"name"`
	Type  string `json:"type"`
	Entry *entry `json:"entry,omitempty"`
}

// kinds are the types of events, in the order in which one change is told as several.
var kinds = []struct {
	op   fsnotify.Op
	name string
}{
	{fsnotify.Create, "EVENT_TYPE_CREATE"},
	{fsnotify.Rename, "EVENT_TYPE_RENAME"},
	{fsnotify.Chmod, "EVENT_TYPE_CHMOD"},
	{fsnotify.Write, "EVENT_TYPE_WRITE"},
	{fsnotify.Remove, "EVENT_TYPE_REMOVE"},
}

// folderWatch watches a folder.
type folderWatch struct {
	*fsnotify.Watcher
	server    *Server
	asked     string // the folder as clients name it
	folder    string
	recursive bool
	entries   bool
}

// watch begins to watch a folder.
func (s *Server) watch(r *http.Request, q *watchRequest) (*folderWatch, *connectError) {
	u, refused := s.userOf(r)
	if refused != nil {
		return nil, refused
	}
	asked := u.resolve(q.Path)
	info, err := os.Stat(asked)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, failed(notFound, "path %s not found", asked)
	case err != nil:
		return nil, fileError(err, "looking at the path "+asked)
	case !info.IsDir():
		return nil, failed(invalidArgument, "path %s is not a directory", asked)
	}
	folder, err := filepath.EvalSymlinks(asked)
	if err != nil {
		return nil, fileError(err, "looking at the path "+asked)
	}
	w, err := fsnotify.NewWatcher()
	if err != nil {
		return nil, failed(internalError, "error creating watcher: %v", err)
	}
	f := &folderWatch{w, s, asked, folder, q.Recursive, q.IncludeEntry}
	if err := f.add(folder); err != nil {
		w.Close()
		return nil, failed(internalError, "error adding path %s to watcher: %v", asked, err)
	}
	return f, nil
}

// add watches a folder and, where that is asked for, those in it.
func (f *folderWatch) add(folder string) error {
	if !f.recursive {
		return f.Add(folder)
	}
	return filepath.WalkDir(folder, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil && path != folder && errors.Is(err, fs.ErrNotExist):
			return nil
		case err != nil:
			return err
		case d.IsDir():
			return f.Add(path)
		}
		return nil
	})
}

// changes are what an event of fsnotify's tells.
func (f *folderWatch) changes(e fsnotify.Event) (all []change) {
	name, err := filepath.Rel(f.folder, e.Name)
	if err != nil || name == "." || strings.HasPrefix(name, "../") {
		return nil
	}
	if f.recursive && e.Has(fsnotify.Create) {
		if info, err := os.Lstat(e.Name); err == nil && info.IsDir() {
			_ = f.add(e.Name) // it may have gone
		}
	}
	for _, k := range kinds {
		if !e.Has(k.op) {
			continue
		}
		c := change{Name: name, Type: k.name}
		if f.entries && k.op != fsnotify.Remove && k.op != fsnotify.Rename {
			if there, err := f.server.describe(e.Name); err == nil {
				there.Path = filepath.Join(f.asked, name)
				c.Entry = there
			}
		}
		all = append(all, c)
	}
	return all
}

// watchDir tells a client of changes until it goes.
func (s *Server) watchDir(r *http.Request, q *watchRequest, to *stream) *connectError {
	f, refused := s.watch(r, q)
	if refused != nil {
		return refused
	}
	defer f.Close()
	if to.send(event{"start": struct{}{}}) != nil {
		return nil
	}
	for {
		select {
		case <-to.ctx.Done():
			return to.left()
		case err, open := <-f.Errors:
			if !open {
				return failed(internalError, "the watcher has ended")
			}
			return failed(internalError, "watcher error: %v", err)
		case e, open := <-f.Events:
			if !open {
				return failed(internalError, "the watcher has ended")
			}
			for _, c := range f.changes(e) {
				if to.send(event{"filesystem": c}) != nil {
					return nil
				}
			}
		}
	}
}

// watchers are those that clients ask for their events. It is safe for concurrent use.
type watchers struct {
	mu  sync.Mutex // guards all
	all map[string]*keptWatch
}

// keptWatch is a watcher whose events are kept until it is asked for them.
type keptWatch struct {
	*folderWatch
	mu     sync.Mutex // guards what follows
	events []change
	err    error
}

func (w *keptWatch) collect() {
	for {
		select {
		case e, open := <-w.Events:
			if !open {
				return
			}
			all := w.changes(e)
			w.mu.Lock()
			if w.events = append(w.events, all...); len(w.events) > mostEvents {
				w.events = w.events[len(w.events)-mostEvents:]
			}
			w.mu.Unlock()
		case err, open := <-w.Errors:
			if !open {
				return
			}
			w.mu.Lock()
			w.err = err
			w.mu.Unlock()
		}
	}
}

func (w *watchers) close() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, one := range w.all {
		one.Close()
	}
	w.all = nil
}

func (w *watchers) get(id string) (*keptWatch, *connectError) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if one := w.all[id]; one != nil {
		return one, nil
	}
	return nil, failed(notFound, "watcher with id %s not found", id)
}

type (
	watcherID struct {
		ID string `json:"watcherId"`
	}
	changes struct {
		Events []change `json:"events"`
	}
)

func (s *Server) createWatcher(r *http.Request, q *watchRequest) (*watcherID, *connectError) {
	f, refused := s.watch(r, q)
	if refused != nil {
		return nil, refused
	}
	one, id := &keptWatch{folderWatch: f}, "w"+strings.ToLower(rand.Text())
	s.watchers.mu.Lock()
	defer s.watchers.mu.Unlock()
	if len(s.watchers.all) >= mostWatchers {
		f.Close()
		return nil, failed(resourceExhausted, "there are %d watchers already: remove some", mostWatchers)
	}
	if s.watchers.all == nil {
		s.watchers.all = map[string]*keptWatch{}
	}
	s.watchers.all[id] = one
	s.jobs.Go(one.collect)
	return &watcherID{id}, nil
}

func (s *Server) watcherEvents(_ *http.Request, q *watcherID) (*changes, *connectError) {
	one, refused := s.watchers.get(q.ID)
	if refused != nil {
		return nil, refused
	}
	one.mu.Lock()
	defer one.mu.Unlock()
	if one.err != nil {
		return nil, failed(internalError, "watcher error: %v", one.err)
	}
	all := changes{Events: one.events}
	if one.events = nil; all.Events == nil {
		all.Events = []change{}
	}
	return &all, nil
}

func (s *Server) removeWatcher(_ *http.Request, q *watcherID) (*nothing, *connectError) {
	one, refused := s.watchers.get(q.ID)
	if refused != nil {
		return nil, refused
	}
	s.watchers.mu.Lock()
	delete(s.watchers.all, q.ID)
	s.watchers.mu.Unlock()
	one.Close()
	return &nothing{}, nil
}
