package broker

import (
	"encoding/json"
	"slices"

	"paddock/internal/fault"
	"paddock/internal/textsafe"
)

// The names under which a call's _meta says through which paddocks it has come, and
// how many calls are left to whoever it leads to.
const (
	chainKey     = "paddock/chain"
	callsLeftKey = "paddock/callsLeft"
)

// maxChain is how many paddocks may call each other in a row, and maxInstance bounds
// the name of one, in bytes.
const (
	maxChain    = 3
	maxInstance = 100
)

// Inherited is what a run has of the call of another paddock that led to it.
type Inherited struct {
	Chain []string // the instances that it came through, the first one first
	// CallsLeft is how many calls the run may make, where Limited.
	CallsLeft int
	Limited   bool
}

// Inherit reads the _meta of a request that wants a program to be run. A request that
// this paddock's own calls led to, or that came through too many, is a fault of kind
// Denied: a server that calls back cannot recurse. A request without such entries, as
// people's and models' are, inherits nothing.
func (b *Broker) Inherit(meta map[string]any) (Inherited, error) {
	var in Inherited
	if value, ok := meta[chainKey]; ok {
		if err := reread(value, &in.Chain); err != nil || slices.ContainsFunc(in.Chain, func(id string) bool { return id == "" || len(id) > maxInstance }) {
			return Inherited{}, fault.New(fault.Invalid, "_meta[%q] is not a list of names", chainKey)
		}
	}
	if slices.Contains(in.Chain, b.config.Instance) {
		return Inherited{}, fault.New(fault.Denied, "a server that this paddock called calls it back").
			WithHint("a program's tools may not run programs in the same paddock")
	}
	if len(in.Chain) > maxChain {
		return Inherited{}, fault.New(fault.Denied, "the request came through %d paddocks that called each other, and %d are allowed", len(in.Chain), maxChain).
			WithHint("let the first of them call the tool itself")
	}
	if value, ok := meta[callsLeftKey]; ok {
		in.Limited = true
		if err := reread(value, &in.CallsLeft); err != nil || in.CallsLeft < 0 {
			return Inherited{}, fault.New(fault.Invalid, "_meta[%q] is %s, not a number of calls", callsLeftKey, textsafe.Line(string(encoded(value)), 40))
		}
	}
	return in, nil
}

func reread(value, into any) error { return json.Unmarshal(encoded(value), into) }

func encoded(value any) []byte {
	text, err := json.Marshal(value)
	if err != nil {
		return nil // which is not JSON either
	}
	return text
}

// limit is how many calls a run may make.
func (b *Broker) limit(run Run) int {
	if run.Inherited.Limited {
		return min(b.config.CallsPerRun, run.Inherited.CallsLeft)
	}
	return b.config.CallsPerRun
}

// metaOf is what goes to the server beside a call's arguments.
func (b *Broker) metaOf(run Run, number int) map[string]any {
	return map[string]any{
		idempotency:  keyOf(run, number),
		chainKey:     append(slices.Clone(run.Inherited.Chain), b.config.Instance),
		callsLeftKey: max(0, b.limit(run)-number),
	}
}
