package schema

import (
	"container/list"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"sync"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"paddock/internal/fault"
)

// The bounds of what is validated. A schema of 4,000 values compiles in about
// 50 ms; a tool's own has fifty. The steps are visits of a schema at a value,
// two microseconds or more each, so a validation ends within a second or two whatever
// the two texts are.
var (
	schemaLimits    = Limits{Bytes: 256 << 10, Depth: 100, Values: 4000}
	argumentsLimits = Limits{Bytes: 8 << 20, Depth: 200, Values: 300_000}
)

const (
	maxSteps    = 300_000
	maxCompiled = 1000 // schemas that a Validator keeps
)

// Validator checks arguments against schemas, and keeps the last thousand
// schemas that it compiled by their digests. The zero Validator is ready. It may
// be used by several goroutines; those that use the same schema wait for each
// other.
type Validator struct {
	mu    sync.Mutex // guards the two below; no schema's lock is taken under it
	known map[[sha256.Size]byte]*list.Element
	order *list.List // of *compiled, the last used in front
}

// compiled is a schema that is ready for use, or nothing at all where it cannot
// be used.
type compiled struct {
	digest  [sha256.Size]byte
	once    sync.Once
	ignored []string

	mu     sync.Mutex // guards the run of one validation: the meter counts it
	meter  meter
	schema *jsonschema.Schema
	widest int // the longest enum
}

// Validate tells whether arguments, which have to be an object, are what the
// schema input allows. The error is a fault of kind Invalid that names each
// field that is wrong (five at most) by its path and says what was expected.
// Numbers are compared exactly.
//
// What cannot be checked is left to the server, and [Validator.Ignored] says so:
// remote references, patterns that RE2 does not have, and schemas that are no
// schema. Nil and empty input allows every object.
func (v *Validator) Validate(input, arguments json.RawMessage) error {
	value, err := Decode(arguments, argumentsLimits)
	if err != nil {
		f := fault.New(fault.Invalid, "the arguments cannot be read: %v", err)
		if errors.Is(err, errTooLarge) {
			f = f.WithHint("hand over large contents as a file where the tool takes one, or in parts")
		}
		return f
	}
	if value.Kind != Object {
		return fault.New(fault.Invalid, "the arguments are %s, not an object", value.Kind).
			WithHint("pass each parameter by its name")
	}
	if len(input) == 0 {
		return nil
	}
	return v.find(input).check(value)
}

// Ignored says in sentences what of the schema is not checked, in its order; nil
// when all of it is.
func (v *Validator) Ignored(input json.RawMessage) []string {
	if len(input) == 0 {
		return nil
	}
	return v.find(input).ignored
}

// find gives the schema, compiled.
func (v *Validator) find(input json.RawMessage) *compiled {
	digest := sha256.Sum256(input)
	c := v.entry(digest)
	c.once.Do(func() { c.compile(input) })
	return c
}

func (v *Validator) entry(digest [sha256.Size]byte) *compiled {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.known == nil {
		v.known, v.order = map[[sha256.Size]byte]*list.Element{}, list.New()
	}
	if e, ok := v.known[digest]; ok {
		v.order.MoveToFront(e)
		return e.Value.(*compiled)
	}
	c := &compiled{digest: digest}
	v.known[digest] = v.order.PushFront(c)
	if v.order.Len() > maxCompiled {
		last := v.order.Back()
		v.order.Remove(last)
		delete(v.known, last.Value.(*compiled).digest)
	}
	return c
}

// check validates an object.
func (c *compiled) check(value Value) (err error) {
	if c.schema == nil {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	tooCostly := fault.New(fault.Invalid, "checking the arguments against the tool's schema takes too long").
		WithHint("pass less at once; the schema of this tool is costly to check")
	if c.widest > 100 && c.widest*count(value) > 10*maxSteps {
		return tooCostly
	}
	c.meter.left = maxSteps
	defer func() {
		if p := recover(); p == errSpent {
			err = tooCostly
		} else if p != nil {
			panic(p)
		}
	}()
	return explain(c.schema.Validate(value.plain()), value)
}

// count gives how many values there are in v.
func count(v Value) int {
	n := 1
	for _, item := range v.Items {
		n += count(item)
	}
	for _, m := range v.Members {
		n += count(m.Value)
	}
	return n
}

// meter counts what a validation costs, and ends it by a panic with errSpent when
// nothing is left: the library knows no other way to stop.
type meter struct{ left int }

var errSpent = errors.New("schema: the steps of a validation are used up")

func (m *meter) spend(steps int) {
	if m.left -= steps; m.left < 0 {
		panic(errSpent)
	}
}

// String gives the kind as a reader of JSON calls it.
func (k Kind) String() string {
	return [...]string{"nothing", "null", "a boolean", "a number", "a string", "an array", "an object"}[k]
}
