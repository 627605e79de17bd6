package session

import (
	"fmt"
	"strings"

	"paddock/internal/fault"
	"paddock/internal/sandbox"
	"paddock/internal/textsafe"
	"paddock/internal/workspace"
)

// notices are what results have to tell of what happened before their programs ran.
// They belong to the first in the queue, and to the opening.
type notices struct {
	lostReasons map[string]string // runtimes whose variables are gone, and why: told by each one's next result
	pending     string            // what else the next result tells
	// calls is what it tells of what was done outside of the session, where a reset
	// takes nothing back.
	calls string
}

// addNotice has the next result say this, once.
func (n *notices) addNotice(news string) {
	if !strings.Contains(n.pending, news) {
		n.pending = joinNotices(n.pending, news)
	}
}

// drainNotices gives what the next result has to tell besides, which is told then.
func (n *notices) drainNotices() string {
	all := joinNotices(n.pending, n.calls)
	n.pending, n.calls = "", ""
	return all
}

// notice tells what a model has to know about its variables and files after a run, and
// what there was to tell before; rolledBack: its files are as they were before it.
func (n *notices) notice(runtime string, exit sandbox.Exit, rolledBack bool) string {
	earlier := n.drainNotices()
	if why, ok := n.lostReasons[runtime]; ok {
		delete(n.lostReasons, runtime)
		earlier = joinNotices(earlier, fmt.Sprintf("This was a fresh %s interpreter: variables, functions and imports of earlier calls are gone, because %s. Files in /workspace are there.", runtime, why))
	}
	now := ""
	switch {
	case exit.State == sandbox.Restored && rolledBack:
		now = describeEnd(exit.Cause) + " Variables and files are as they were before this call."
	case exit.State == sandbox.Restored:
		now = describeEnd(exit.Cause) + " Variables are as they were before this call; changes to files remain."
	case exit.State == sandbox.Fresh && rolledBack:
		now = describeEnd(exit.Cause) + fmt.Sprintf(" The %s interpreter went with it: variables, functions and imports are gone. Files in /workspace are as they were before this call.", runtime)
	case exit.State == sandbox.Fresh:
		now = describeEnd(exit.Cause) + fmt.Sprintf(" The %s interpreter went with it: variables, functions and imports are gone. Files in /workspace are there.", runtime)
	}
	return joinNotices(earlier, now)
}

// describeEnd says how a program ended that did not leave its interpreter intact.
func describeEnd(c sandbox.Cause) string {
	switch c {
	case sandbox.Exited:
		return "The program ended its interpreter."
	case sandbox.Crashed:
		return "The interpreter crashed."
	case sandbox.OutOfMemory:
		return "The program left no memory to go on with."
	}
	return "The program did not stop when told to (" + c.String() + ") and was stopped by force."
}

// overtaken tells what became of a session whose end, or reset, ran into a
// program; "" where it was nothing of the kind. Whatever the program left is
// gone by the time that anybody can look.
func overtaken(cause error) string {
	switch cause {
	case errReset:
		return "The session was reset: its variables and files are gone."
	case errDestroyed:
		return "The session was destroyed, with its variables and files."
	case errExpired:
		return "The session has expired, with its variables and files."
	}
	return ""
}

// joinNotices puts two notices into one.
func joinNotices(a, b string) string { return strings.TrimSpace(a + " " + b) }

// noteMissing tells of files that lie where nothing is kept, when there are more
// places of them than at the last call.
func (c *checkpoints) noteMissing() string {
	c.mu.Lock()
	u := c.repo.Unsaved()
	c.mu.Unlock()
	more := u.Count > c.missing
	c.missing = u.Count
	if !more {
		return ""
	}
	return fmt.Sprintf("Some files are not kept, in %d places, the first is /%s: they lie deeper than 200 folders, or may not be read. They take room here, but undo, forks and exports do not have them.", u.Count, textsafe.Escape(u.First))
}

// notInCheckpoint tells of files that a checkpoint did not hold which was gone to.
func notInCheckpoint(u workspace.Unkept) string {
	if u.Count == 0 {
		return ""
	}
	return fmt.Sprintf("The checkpoint does not hold all files: those in %d places, the first is /%s, deeper than 200 folders or such that could not be read, are as they were found, or missing.", u.Count, textsafe.Escape(u.First))
}

// describeUnsaved says what a model has to know when its call could not be kept.
func describeUnsaved(err error) string {
	f := fault.Of(err)
	why := f.Message
	if f.Kind == fault.Internal {
		why = "the server's log says why"
	}
	return "What this call left is in memory only: it could not be kept on disk (" + why + "). It is lost when the server ends; the next call tries again."
}
