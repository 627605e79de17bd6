package schema

import (
	"container/list"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"sync"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"paddock/internal/fault"
	"paddock/internal/pattern"
)

// The bounds of what is validated. A schema of 4,000 values compiles in about
// 50 ms; a tool's own has fifty. Visits of a schema at a value, what is in the value,
// and each instruction of a pattern at each byte are counted, so that a validation ends
// within seconds whatever the two texts are.
var (
	schemaLimits    = Limits{Bytes: 256 << 10, Depth: 100, Values: 4000}
	argumentsLimits = Limits{Bytes: 8 << 20, Depth: 200, Values: 300_000}
)

const (
	// maxSteps is what one validation may cost, in the steps of package pattern.
	maxSteps    = 64 << 20
	maxCompiled = 1000     // schemas that a Validator keeps
	maxKept     = 64 << 20 // bytes that they take, about
	maxFree     = 4        // instances that are kept of one schema
)

// Validator checks arguments against schemas, and keeps the last thousand
// schemas that it compiled by their digests. The zero Validator is ready. It may
// be used by several goroutines, none of which waits for another's validation.
type Validator struct {
	mu     sync.Mutex // guards what follows; no schema's lock is taken under it
	known  map[[sha256.Size]byte]*list.Element
	order  *list.List // of *compiled, the last used in front
	weight int64      // of all that is known
}

// compiled is a schema that is ready for use, or nothing at all where it cannot
// be used.
type compiled struct {
	digest  [sha256.Size]byte
	once    sync.Once
	ignored []string
	weight  int64 // in bytes, about; set once it is compiled
	widest  int   // the longest enum
	counted int64 // the weight, from when the Validator counts it; guarded by its mu

	mu       sync.Mutex // guards what follows, and is held while an instance is made
	value    Value      // what instances are made of, as draft
	draft    *jsonschema.Draft
	patterns *pattern.Compiler
	free     []*instance // nil: it cannot be used
}

// instance is a schema for one validation at a time: its parts count in its meter,
// as the library has no other way to tell them which validation they are of.
type instance struct {
	schema   *jsonschema.Schema
	meter    meter
	patterns *pattern.Compiler // while it is made
}

// Validate tells whether arguments, which have to be an object, are what the
// schema input allows. The error is a fault of kind Invalid that names each
// field that is wrong (five at most) by its path and says what was expected.
// Numbers are compared exactly. It ends with ctx, and is counted as the owner's.
//
// What cannot be checked is left to the server, and [Validator.Ignored] says so:
// remote references, patterns that RE2 does not have or that are too large, and
// schemas that are no schema. Nil and empty input allows every object.
func (v *Validator) Validate(ctx context.Context, owner string, input, arguments json.RawMessage) error {
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
	return v.find(input).check(ctx, owner, value)
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
	c.once.Do(func() {
		c.compile(input)
		v.weigh(c)
	})
	return c
}

// weigh counts what a schema takes, once it is compiled, and forgets others for it.
func (v *Validator) weigh(c *compiled) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if e, ok := v.known[c.digest]; !ok || e.Value != c {
		return // it is forgotten already
	}
	c.counted = c.weight
	v.weight += c.counted
	for v.weight > maxKept && v.order.Len() > 1 {
		v.forgetLocked()
	}
}

// forgetLocked lets go of the schema that was used least recently.
func (v *Validator) forgetLocked() {
	last := v.order.Back()
	c := last.Value.(*compiled)
	v.order.Remove(last)
	delete(v.known, c.digest)
	v.weight -= c.counted
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
		v.forgetLocked()
	}
	return c
}

// check validates an object.
func (c *compiled) check(ctx context.Context, owner string, value Value) (err error) {
	one, err := c.take()
	if one == nil || err != nil {
		return err
	}
	tooCostly := fault.New(fault.Invalid, "checking the arguments against the tool's schema takes too long").
		WithHint("pass less at once; the schema of this tool is costly to check")
	if c.widest > 100 && c.widest*count(value) > 3_000_000 {
		c.give(one)
		return tooCostly
	}
	one.meter.begin(ctx, owner, 1+depth(value)/10)
	defer func() {
		one.meter.end()
		c.give(one)
		switch p := recover().(type) {
		case nil:
		case spent:
			if err = p.why; fault.KindOf(err) == fault.Exhausted {
				err = tooCostly
			}
		default:
			panic(p)
		}
	}()
	return explain(one.schema.Validate(value.plain()), value)
}

// take gives an instance that nobody else uses; nil where the schema cannot be used.
func (c *compiled) take() (*instance, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.free == nil {
		return nil, nil
	}
	if last := len(c.free) - 1; last >= 0 {
		one := c.free[last]
		c.free = c.free[:last]
		return one, nil
	}
	one, err := c.compileAs(c.value, c.draft)
	if err != nil {
		return nil, fmt.Errorf("compiling a schema again: %w", err) // it could be compiled before
	}
	return one, nil
}

func (c *compiled) give(one *instance) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.free) < maxFree {
		c.free = append(c.free, one)
	}
}

// depth is how deep arrays and objects are in each other.
func depth(v Value) int {
	most := 0
	for _, item := range v.Items {
		most = max(most, depth(item))
	}
	for _, m := range v.Members {
		most = max(most, depth(m.Value))
	}
	return most + 1
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

// meter counts what a validation costs, and ends it by a panic with spent: the
// library knows no other way to stop.
type meter struct {
	cost *pattern.Meter
	deep int64 // what a step costs: each error holds the path to where it is
}

func (m *meter) begin(ctx context.Context, owner string, deep int) {
	m.cost, m.deep = pattern.NewMeter(ctx, owner, maxSteps), int64(deep)
}

func (m *meter) end() { m.cost.Close() }

// spent is a validation that ended early.
type spent struct{ why error }

func (m *meter) spend(steps int64) {
	if err := m.cost.Spend(steps * m.deep); err != nil {
		panic(spent{err})
	}
}

// String gives the kind as a reader of JSON calls it.
func (k Kind) String() string {
	return [...]string{"nothing", "null", "a boolean", "a number", "a string", "an array", "an object"}[k]
}
