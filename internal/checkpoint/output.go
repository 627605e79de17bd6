package checkpoint

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"

	"paddock/internal/blob"
	"paddock/internal/history"
)

// What is kept of an execution's output belongs to the checkpoint that was made after it:
// it becomes durable with that, and is collected with it.

const (
	// inlineText is how long a text is at most that is part of the manifest, in bytes: it
	// costs no file of its own.
	inlineText = 8 << 10
	// MaxDisplays and MaxDisplayed bound what one execution displayed: so many, with so many
	// bytes together. Of the rest it is kept what it was.
	MaxDisplays, MaxDisplayed = 100, 4 << 20
	// maxText bounds a text when it is read.
	maxText = 64 << 20
)

// Output is what an execution was and did.
type Output struct {
	Text     json.RawMessage // an object
	Displays []Display
}

// Display is one thing that it displayed; Data is nil where that was not kept, or is not
// there any more.
type Display struct {
	MIME string
	Size int64
	Data []byte
}

// takeOutput takes up what a note says of an execution's output. Of a run that changed
// nothing else, undo leads to where it leads from head.
func (d *draft) takeOutput(n Note) error {
	if n.Output == nil {
		return nil
	}
	out := &history.Output{Text: n.Output.Text}
	if len(out.Text) > inlineText {
		ref, err := d.put("", bytes.NewReader(out.Text))
		if err != nil {
			return fmt.Errorf("keeping what an execution printed: %w", err)
		}
		out.Text, out.Content = nil, &ref
	}
	left := int64(MaxDisplayed)
	for _, shown := range n.Output.Displays[:min(len(n.Output.Displays), MaxDisplays)] {
		one := history.Display{MIME: shown.MIME, Size: int64(len(shown.Data))}
		if one.Size <= left {
			left -= one.Size
			ref, err := d.put("", bytes.NewReader(shown.Data))
			if err != nil {
				return fmt.Errorf("keeping what an execution displayed: %w", err)
			}
			one.Content = &ref
		}
		out.Displays = append(out.Displays, one)
	}
	if !d.changed && d.k.head != nil {
		d.next.Previous = d.k.head.Previous
	}
	d.next.Output, d.changed = out, true
	return nil
}

// OutputText reads the text of an output that a checkpoint has.
func (r *Repo) OutputText(m *history.Manifest) ([]byte, error) {
	if m.Output.Content == nil {
		return m.Output.Text, nil
	}
	text, err := r.c.Store.Load(*m.Output.Content, maxText)
	if err != nil {
		return nil, fmt.Errorf("reading what an execution printed: %w", err)
	}
	return text, nil
}

// Displays reads what the execution before a checkpoint displayed. What was not kept, or is
// not there any more, has no data.
func (r *Repo) Displays(number int64) (all []Display, err error) {
	m, err := r.at(number)
	if err != nil || m.Output == nil {
		return nil, err
	}
	for _, shown := range m.Output.Displays {
		one := Display{MIME: shown.MIME, Size: shown.Size}
		if shown.Content != nil {
			one.Data, err = r.c.Store.Load(*shown.Content, MaxDisplayed)
			if err != nil && !errors.Is(err, blob.ErrMissing) && !errors.Is(err, blob.ErrDamaged) {
				return nil, fmt.Errorf("reading what an execution displayed: %w", err)
			}
		}
		all = append(all, one)
	}
	return all, nil
}
