package execution

import (
	"slices"
	"strings"

	"paddock/internal/session"
)

// Part is what came of an execution until now.
type Part struct {
	Result session.Result
	Filed  Filed
	// Told is how much of what was printed its client knows from an earlier result.
	Told session.Earlier

	// Session is where it ran, also after an error; empty: that is not known.
	Session session.ID
	// Named reports that the session was made because the call or its address names it.
	Named bool
	// Notice is about the session, for the result; empty: there is nothing to say.
	Notice string
}

// Filed is what of a run's output became files.
type Filed struct {
	Displays       map[int]Place // by their place in the list
	NoPictures     bool          // pictures are in files alone
	Stdout, Stderr Place
}

// Place says where something is; the zero value: nowhere.
type Place struct {
	Path    string
	Problem string // why it could not be written
	Smaller []byte // a picture as a smaller PNG; nil: there is none
	Part    bool   // of a stream it has the beginning and the end
}

// followedBy puts together what an execution did before and after it waited.
func (p Part) followedBy(more Part) Part {
	shift := len(p.Result.Displays)
	displays := map[int]Place{}
	for k, f := range p.Filed.Displays {
		displays[k] = f
	}
	for k, f := range more.Filed.Displays {
		displays[k+shift] = f
	}
	more.Result.Displays = append(slices.Clip(p.Result.Displays), more.Result.Displays...)
	more.Result.Changes = append(slices.Clip(p.Result.Changes), more.Result.Changes...)
	more.Result.Notice = strings.TrimSpace(p.Result.Notice + " " + more.Result.Notice)
	more.Result.Wall += p.Result.Wall
	more.Filed.Displays, more.Told = displays, p.Told
	more.Filed.NoPictures = p.Filed.NoPictures || more.Filed.NoPictures
	return more
}

// size is how many bytes of what programs gave it holds.
func (p Part) size() int {
	n := len(p.Result.Stdout) + len(p.Result.Stderr)
	for _, d := range p.Result.Displays {
		n += len(d.Data)
	}
	for _, f := range p.Filed.Displays {
		n += len(f.Smaller)
	}
	return n
}
