package wire

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"paddock/internal/fault"
	"paddock/internal/sandbox"
)

// What an inspection tells at most; texts in characters. The drivers have the same
// numbers. A program chooses its names, and whatever keeps them has to be read again.
const (
	maxVariables = 200
	maxName      = 256
	maxType      = 100
	maxPreview   = 120
	maxImports   = 200
	maxImport    = 200
)

// InspectedBody answers a request for an inspection.
type InspectedBody struct {
	sandbox.Inspection
	Error string // why there is none; empty: there is one
}

// Brief cuts what is longer in an inspection than any has to be. It changes the
// lists of i.
func Brief(i sandbox.Inspection) sandbox.Inspection {
	i.Variables = i.Variables[:min(len(i.Variables), maxVariables)]
	for n, v := range i.Variables {
		i.Variables[n] = sandbox.Variable{Name: cut(v.Name, maxName), Type: cut(v.Type, maxType), Preview: cut(v.Preview, maxPreview)}
	}
	i.Imports = i.Imports[:min(len(i.Imports), maxImports)]
	for n, name := range i.Imports {
		i.Imports[n] = cut(name, maxImport)
	}
	return i
}

// cut gives the beginning of a text of more than limit characters.
func cut(text string, limit int) string {
	if len(text) <= limit {
		return text
	}
	n, last := 0, 0
	for at := range text {
		if n++; n == limit {
			last = at
		} else if n > limit {
			return text[:last] + "…"
		}
	}
	return text
}

// Inspect tells what the interpreter holds.
func (in *Instance) Inspect(ctx context.Context) (sandbox.Inspection, error) {
	var found InspectedBody
	body, err := in.ask(ctx, KindInspect, struct{}{}, KindInspected)
	if err != nil {
		return sandbox.Inspection{}, err
	}
	if err := json.Unmarshal(body, &found); err != nil {
		return sandbox.Inspection{}, fmt.Errorf("reading an inspection: %w", err)
	}
	if found.Error != "" {
		return sandbox.Inspection{}, fault.New(fault.Unavailable, "the interpreter did not answer").WithCause(errors.New(found.Error))
	}
	return Brief(found.Inspection), nil
}
