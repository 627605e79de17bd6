package broker

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"paddock/internal/bindings"
	"paddock/internal/bindings/journal"
	"paddock/internal/bindings/upstream"
	"paddock/internal/textsafe"
)

// A run that ends with the process leaves what its calls did behind, and nobody was told
// that it made them. So each call that matters is noted before it is sent, and when it
// was answered; the notes go with the run's end. What is left of them is told to whoever
// uses the session next.

// How many runs, and calls of each, are named, and how long a call's name is, in bytes.
const (
	maxToldRuns  = 3
	maxToldCalls = 5
	maxToldName  = 100
)

// matters tells whether a call is to be told of: one that a person allowed, and all but
// those that may be made once more without harm.
func matters(e *Event, t bindings.Tool) bool {
	return e.Verdict == Asks || !says(t.Annotations.ReadOnly, true) && !says(t.Annotations.Idempotent, true)
}

// noteBegun notes a call that is about to be sent, if it matters, and tells whether it
// did. A call is made whether it can be noted or not.
func (b *Broker) noteBegun(ctx context.Context, e *Event, d decided) bool {
	if !matters(e, d.tool) {
		return false
	}
	name := d.one.Name + "/" + textsafe.Line(e.Tool, maxToldName)
	err := b.config.Journal.Note(runOf(e.Run), e.Number, name)
	if err != nil {
		b.config.Log.WarnContext(ctx, "a call cannot be noted", "session", e.ID, "cause", err)
	}
	return err == nil
}

// noteEnded notes what came of a call; of one of which nobody knows, nothing.
func (b *Broker) noteEnded(ctx context.Context, e *Event, cause error, unsent bool) {
	var up *upstream.Error
	if cause != nil && !unsent && (!errors.As(cause, &up) || up.Unknown()) {
		return
	}
	if err := b.config.Journal.Answered(runOf(e.Run), e.Number, unsent); err != nil {
		b.config.Log.WarnContext(ctx, "that a call was answered cannot be noted", "session", e.ID, "cause", err)
	}
}

// CutShort tells what runs of a session called that were cut short: those of which
// anything is kept, but for some executions. The caller has to know that none of them
// goes on, nor will. No news: there is nothing to tell. done lets go of what was told.
func (b *Broker) CutShort(s Session, but ...string) (news string, done func()) {
	if b.config.Journal == nil {
		return "", func() {}
	}
	left, err := b.config.Journal.Left(s.Owner, s.ID, but...)
	if err != nil {
		b.config.Log.Warn("what runs called that were cut short cannot be told", "session", s.ID, "cause", err)
	}
	if len(left) == 0 {
		return "", func() {}
	}
	done = func() {
		if err := b.config.Journal.Drop(s.Owner, s.ID, left); err != nil {
			b.config.Log.Warn("the calls of a run that was cut short cannot be removed from the disk", "session", s.ID, "cause", err)
		}
	}
	return cutShort(s, left), done
}

// cutShort says it, the latest run first.
func cutShort(s Session, left []journal.Left) string {
	var runs []string
	left = slices.DeleteFunc(slices.Clone(left), func(l journal.Left) bool { return len(l.Calls) == 0 })
	slices.Reverse(left)
	for _, l := range left[:min(len(left), maxToldRuns)] {
		name := "a run"
		if l.Execution != "" {
			name = "the run " + textsafe.Line(l.Execution, maxToldName)
		}
		runs = append(runs, "The server ended during "+name+": "+madeBy(l.Calls)+".")
	}
	if len(runs) == 0 {
		return ""
	}
	if more := len(left) - len(runs); more > 0 {
		runs = append(runs, fmt.Sprintf("So it did during %d earlier runs.", more))
	}
	return strings.Join(runs, " ") + " Nothing is called again by itself: look before you repeat it. paddock audit ls --session " + s.ID + " has more."
}

// madeBy says what became of calls.
func madeBy(calls []journal.Made) string {
	var made, perhaps []string
	for _, c := range calls {
		name := fmt.Sprintf("call %d", c.Number)
		if c.Name != "" {
			name = fmt.Sprintf("%q (%s)", textsafe.Line(c.Name, maxToldName), name)
		}
		if c.Answered {
			made = append(made, name)
		} else {
			perhaps = append(perhaps, name)
		}
	}
	var parts []string
	if len(perhaps) > 0 {
		parts = append(parts, enumerated(perhaps)+" may have been made")
	}
	if len(made) > 0 {
		was := " was made"
		if len(made) > 1 {
			was = " were made"
		}
		parts = append(parts, enumerated(made)+was)
	}
	return strings.Join(parts, "; ")
}

// enumerated gives the first names, and how many more there are.
func enumerated(names []string) string {
	more := len(names) - maxToldCalls
	if more <= 0 {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(names[:maxToldCalls], ", "), more)
}
