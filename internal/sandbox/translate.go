package sandbox

import "context"

// Source is TypeScript: a program, or a module that one imports.
type Source struct {
	Code string `json:"code"`
	Name string `json:"name"` // in messages and in the map
}

// MaxSource bounds the Code of a Source, in bytes.
const MaxSource = 8 << 20

// Translation is a Source in JavaScript.
type Translation struct {
	Code string `json:"code"`
	Map  string `json:"map"` // a source map, which leads from Code back to the Source
	// Error is what is wrong with a Source that has no Code; nil: nothing.
	Error *ProgramError `json:"error,omitempty"`
}

// Translator takes the types out of an owner's TypeScript. It may be called from several
// goroutines. Whatever the Source is, its time and memory are bounded, and it costs this
// call alone. An error says that the Source could not be looked at.
type Translator func(ctx context.Context, owner string, s Source) (Translation, error)
