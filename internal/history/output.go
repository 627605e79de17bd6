package history

import (
	"encoding/json"
	"iter"

	"paddock/internal/blob"
)

// Output is what an execution was and did, for people: nothing goes on from it.
type Output struct {
	// Text is a JSON object with its code and what it printed and returned; a long one is
	// the blob Content instead.
	Text    json.RawMessage `json:"text,omitempty"`
	Content *blob.Ref       `json:"content,omitempty"`
	// Displays are what it displayed, in order.
	Displays []Display `json:"displays,omitempty"`
}

// Display is one thing that an execution displayed.
type Display struct {
	MIME string `json:"mime"`
	Size int64  `json:"size"` // bytes
	// Content is the blob with its data; nil: there was no room for it.
	Content *blob.Ref `json:"content,omitempty"`
}

// refs gives the blobs of an output; of nil there are none.
func (o *Output) refs() iter.Seq[blob.Ref] {
	return func(yield func(blob.Ref) bool) {
		if o == nil || o.Content != nil && !yield(*o.Content) {
			return
		}
		for _, d := range o.Displays {
			if d.Content != nil && !yield(*d.Content) {
				return
			}
		}
	}
}
