package stub

import (
	"encoding/json"
	"strconv"
	"strings"

	"paddock/internal/bindings/schema"
	"paddock/internal/textsafe"
)

// The bounds of what is read of a schema. What goes beyond is Any; the schema
// itself stands in schemas.json.
var readLimits = schema.Limits{Bytes: 256 << 10, Depth: 64, Values: 20_000}

const (
	maxDepth  = 12  // types in each other
	maxTypes  = 600 // of a schema
	maxFields = 200 // of an object
	maxValues = 40  // of an enum; more are told as their type and in the text
	maxBranch = 16  // of a union
)

// form is which of the few forms a type has.
type form uint8

const (
	anything form = iota
	nothing       // no value is allowed
	null
	boolean
	integer
	float
	text
	constant // one of values
	sequence // of[0] is what is in it
	tuple    // of, then any number of rest where it is not nil
	mapping  // of[0] is what its values are
	either   // of
	named    // record
)

// shape is a type, as far as Python and TypeScript can say it.
type shape struct {
	form   form
	values []schema.Value // scalars
	of     []*shape
	rest   *shape
	record *record
	note   string // what the type does not say
}

// record is a type with a name: an object's, or where alias is set any other.
type record struct {
	name   string
	doc    string
	fields []field
	open   bool // it may have other members
	alias  *shape
	used   bool // a type refers to it
}

type field struct {
	name     string
	shape    *shape
	required bool
	doc      string
	value    schema.Value // the default
}

var whatever = &shape{form: anything}

// reader reads one schema.
type reader struct {
	root    schema.Value
	prefix  string
	taken   map[string]bool
	refs    map[string]*record
	records []*record
	left    int // types that may still be read
	// gathered counts down over what makes up objects.
	gathered  int
	arguments bool // it is an input schema
	flat      bool
	notes     []string
}

// read gives the type of a schema, which is the prefix and what it is, Args or
// Result, if it is an object. With flat set nothing is read below its fields.
func (r *reader) read(raw json.RawMessage, what string) *shape {
	if len(raw) == 0 {
		return whatever
	}
	v, err := schema.Decode(raw, readLimits)
	if err != nil {
		r.notes = append(r.notes, "Its schema is not shown here: "+err.Error()+".")
		return whatever
	}
	r.root, r.refs, r.left = v, map[string]*record{}, maxTypes
	r.gathered = 5 * maxTypes
	if _, ok := r.object(v); ok {
		rec := &record{name: r.prefix + what, doc: v.Get("description").Text}
		r.records, r.refs["#"] = append(r.records, rec), rec
		r.fill(rec, v, 0)
		return &shape{form: named, record: rec}
	}
	return r.shape(v, what, 0)
}

// shape reads the schema v; hint is what it would be called.
func (r *reader) shape(v schema.Value, hint string, depth int) *shape {
	if v.Kind == schema.Bool && !v.Bool {
		return &shape{form: nothing}
	}
	if r.left--; v.Kind != schema.Object || depth > maxDepth || r.left < 0 || r.flat && depth > 0 {
		return whatever
	}
	s := r.typed(v, hint, depth)
	if v.Get("nullable").Bool {
		s = join([]*shape{s, {form: null}})
	}
	return s
}

func (r *reader) typed(v schema.Value, hint string, depth int) *shape {
	if ref := v.Get("$ref"); ref.Kind == schema.String {
		return r.refer(ref.Text, depth)
	}
	if c := v.Get("const"); c.Kind != schema.None {
		return constants([]schema.Value{c})
	}
	if e := v.Get("enum"); e.Kind == schema.Array {
		return constants(e.Items)
	}
	if _, ok := r.object(v); ok {
		return r.named(v, hint, depth)
	}
	for _, keyword := range []string{"anyOf", "oneOf"} {
		if list := v.Get(keyword); len(list.Items) > 0 {
			if s := r.branches(list.Items, hint, depth); s.form != anything {
				return s
			}
		}
	}
	if all := v.Get("allOf"); v.Get("type").Kind == schema.None && len(all.Items) > 0 {
		for _, branch := range all.Items {
			if s := r.shape(branch, hint, depth+1); s.form != anything {
				return s
			}
		}
	}
	types := v.Get("type")
	if types.Kind != schema.Array {
		return r.simple(v, types.Text, hint, depth)
	}
	parts := []*shape{}
	for _, t := range types.Items {
		parts = append(parts, r.simple(v, t.Text, hint, depth))
	}
	return join(parts)
}

func (r *reader) branches(list []schema.Value, hint string, depth int) *shape {
	if len(list) > maxBranch {
		return whatever
	}
	parts := []*shape{}
	for i, branch := range list {
		name := hint
		if title := identifier(branch.Get("title").Text, ""); branch.Get("title").Text != "" {
			name = title
		} else if i > 0 {
			name += strconv.Itoa(i + 1)
		}
		parts = append(parts, r.shape(branch, name, depth+1))
	}
	return join(parts)
}

// simple reads what v is of one type; of none, what its other keywords suggest.
func (r *reader) simple(v schema.Value, name, hint string, depth int) *shape {
	switch name {
	case "null":
		return &shape{form: null}
	case "boolean":
		return &shape{form: boolean}
	case "integer":
		return &shape{form: integer}
	case "number":
		return &shape{form: float}
	case "string":
		return &shape{form: text}
	case "array":
		return r.list(v, hint, depth)
	case "object":
		return r.mapping(v, hint, depth)
	case "":
		if v.Get("items").Kind != schema.None || v.Get("prefixItems").Kind != schema.None {
			return r.list(v, hint, depth)
		}
		if v.Get("additionalProperties").Kind == schema.Object {
			return r.mapping(v, hint, depth)
		}
	}
	return whatever
}

func (r *reader) mapping(v schema.Value, hint string, depth int) *shape {
	of := whatever
	if values := v.Get("additionalProperties"); values.Kind == schema.Object {
		of = r.shape(values, hint+"Value", depth+1)
	}
	return &shape{form: mapping, of: []*shape{of}}
}

func (r *reader) list(v schema.Value, hint string, depth int) *shape {
	items, first := v.Get("items"), v.Get("prefixItems")
	rest := items
	if items.Kind == schema.Array {
		first, rest = items, v.Get("additionalItems")
	}
	if first.Kind != schema.Array || len(first.Items) == 0 || len(first.Items) > maxBranch {
		if items.Kind != schema.Object {
			return &shape{form: sequence, of: []*shape{whatever}}
		}
		return &shape{form: sequence, of: []*shape{r.shape(items, hint+"Item", depth+1)}}
	}
	t := &shape{form: tuple}
	for i, item := range first.Items {
		t.of = append(t.of, r.shape(item, hint+strconv.Itoa(i+1), depth+1))
	}
	if rest.Kind == schema.Object || rest.Bool { // where nothing is said, nothing more is meant
		t.rest = r.shape(rest, hint+"Item", depth+1)
	}
	return t
}

// constants gives the type of some values: themselves where they are few and
// scalars, else what they are.
func constants(values []schema.Value) *shape {
	parts, few := []*shape{}, &shape{form: constant}
	for _, v := range values {
		switch v.Kind {
		case schema.Array:
			parts = append(parts, &shape{form: sequence, of: []*shape{whatever}})
		case schema.Object:
			parts = append(parts, &shape{form: mapping, of: []*shape{whatever}})
		case schema.Number:
			if strings.ContainsAny(v.Text, ".eE") {
				parts = append(parts, &shape{form: float})
			} else if len(v.Text) > 18 || v.Text == "-0" {
				parts = append(parts, &shape{form: integer})
			} else {
				few.values = append(few.values, v)
			}
		case schema.String:
			if len(v.Text) > 200 {
				parts = append(parts, &shape{form: text})
			} else {
				few.values = append(few.values, v)
			}
		default:
			few.values = append(few.values, v)
		}
	}
	if len(few.values) > maxValues {
		return widened(parts, few.values)
	}
	if len(few.values) > 0 {
		parts = append(parts, few)
	}
	if len(parts) == 0 {
		return &shape{form: nothing}
	}
	return join(parts)
}

// widened gives the types of too many values, and a note that begins to list them.
func widened(parts []*shape, values []schema.Value) *shape {
	note := "one of "
	for i, v := range values {
		if i == maxValues/2 {
			note += "… (" + strconv.Itoa(len(values)) + " values, all in schemas.json)"
			break
		}
		note += textsafe.Shorten(v.JSON(), 40) + ", "
	}
	for _, v := range values {
		parts = append(parts, &shape{form: map[schema.Kind]form{schema.Null: null, schema.Bool: boolean, schema.Number: integer, schema.String: text}[v.Kind]})
	}
	s := *join(parts)
	s.note = note
	return &s
}

// join makes one type of several that are each allowed.
func join(parts []*shape) *shape {
	var flat []*shape
	seen := map[string]bool{}
	for _, p := range parts {
		members := []*shape{p}
		if p.form == either {
			members = p.of
		}
		for _, m := range members {
			if m.form == anything {
				return whatever
			}
			if key := script(m); m.form != nothing && !seen[key] {
				seen[key] = true
				flat = append(flat, m)
			}
		}
	}
	switch len(flat) {
	case 0:
		return &shape{form: nothing}
	case 1:
		return flat[0]
	}
	return &shape{form: either, of: flat}
}
