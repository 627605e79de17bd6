package stub

import (
	"net/url"
	"slices"
	"strconv"
	"strings"

	"paddock/internal/bindings/schema"
)

// parts is what makes v an object with members: its own and those of what it is
// said to be as well (allOf), or to be one of beside that (anyOf, oneOf).
type parts struct {
	properties []schema.Member
	required   map[string]bool
	open       bool
	whole      bool // it is the arguments of a tool, which are an object anyway
}

// object gathers the members of v, if it has any.
func (r *reader) object(v schema.Value) (parts, bool) {
	p := parts{required: map[string]bool{}, whole: r.arguments && r.left == maxTypes}
	r.gather(v, &p, false, 0)
	return p, len(p.properties) > 0
}

func (r *reader) gather(v schema.Value, p *parts, optional bool, depth int) {
	if r.gathered--; depth > 4 || r.gathered < 0 || v.Kind != schema.Object {
		return
	}
	if ref := v.Get("$ref"); ref.Kind == schema.String && (depth > 0 || p.whole) {
		if at, ok := r.at(ref.Text); ok {
			r.gather(at, p, optional, depth+1)
		}
	}
	own := v.Get("properties")
	for _, m := range own.Members {
		if i := slices.IndexFunc(p.properties, func(o schema.Member) bool { return o.Name == m.Name }); i < 0 && len(p.properties) <= maxFields {
			p.properties = append(p.properties, m)
		} else if i < 0 {
			p.open = true
		}
	}
	for _, name := range v.Get("required").Items {
		if !optional {
			p.required[name.Text] = true
		}
	}
	if more := v.Get("additionalProperties"); more.Kind == schema.Object || more.Bool || v.Get("patternProperties").Kind != schema.None {
		p.open = true
	}
	for _, branch := range v.Get("allOf").Items {
		r.gather(branch, p, optional, depth+1)
	}
	// Alternatives beside members of its own, or those of the arguments as a whole,
	// are all told, as optional ones.
	if (len(own.Members) > 0 || p.whole) && len(v.Get("anyOf").Items)+len(v.Get("oneOf").Items) <= maxBranch {
		for _, branch := range append(slices.Clone(v.Get("anyOf").Items), v.Get("oneOf").Items...) {
			r.gather(branch, p, true, depth+1)
		}
	}
}

// named reads an object as a type with a name.
func (r *reader) named(v schema.Value, hint string, depth int) *shape {
	rec := r.newRecord(r.prefix+pascal(identifier(hint, "Type_")), v)
	r.fill(rec, v, depth)
	rec.used = true
	return &shape{form: named, record: rec}
}

// newRecord makes a record with a name that is not taken.
func (r *reader) newRecord(name string, v schema.Value) *record {
	if len(name) > 80 {
		name = name[:80]
	}
	free := name
	for i := 2; r.taken[strings.ToLower(free)]; i++ {
		free = name + strconv.Itoa(i)
	}
	r.taken[strings.ToLower(free)] = true
	rec := &record{name: free, doc: v.Get("description").Text}
	r.records = append(r.records, rec)
	return rec
}

func (r *reader) fill(rec *record, v schema.Value, depth int) {
	p, _ := r.object(v)
	rec.open = p.open
	for _, m := range p.properties {
		if len(rec.fields) == maxFields {
			rec.open = true
			r.notes = append(r.notes, "It takes more than is shown here: schemas.json has all.")
			break
		}
		s := r.shape(m.Value, m.Name, depth+1)
		if s.form == nothing {
			continue
		}
		f := field{name: m.Name, shape: s, required: p.required[m.Name], doc: m.Value.Get("description").Text, value: m.Value.Get("default")}
		if f.doc == "" {
			f.doc = m.Value.Get("title").Text
		}
		if s.note != "" {
			f.doc = strings.TrimSpace(f.doc + " (" + s.note + ")")
		}
		rec.fields = append(rec.fields, f)
	}
}

// refer follows a reference within the schema; any other is anything.
func (r *reader) refer(ref string, depth int) *shape {
	if rec := r.refs[ref]; rec != nil {
		rec.used = true
		return &shape{form: named, record: rec}
	}
	at, ok := r.at(ref)
	if !ok {
		return whatever
	}
	hint := pointerName(ref)
	rec := r.newRecord(r.prefix+pascal(identifier(hint, "Type_")), at)
	r.refs[ref] = rec
	if _, ok := r.object(at); ok {
		rec.used = true
		r.fill(rec, at, depth)
		return &shape{form: named, record: rec}
	}
	// No object: it needs a name only where it is made of itself.
	s := unwind(r.shape(at, hint, depth+1), rec)
	if rec.used {
		rec.alias = s
		return &shape{form: named, record: rec}
	}
	r.records = slices.DeleteFunc(r.records, func(o *record) bool { return o == rec })
	delete(r.taken, strings.ToLower(rec.name))
	delete(r.refs, ref)
	return s
}

// unwind takes rec out of what it is an alias of, but for what lies in lists and
// objects: a type is not simply itself.
func unwind(s *shape, rec *record) *shape {
	if s.form == named && s.record == rec {
		return whatever
	}
	if s.form != either {
		return s
	}
	return join(slices.DeleteFunc(slices.Clone(s.of), func(o *shape) bool { return o.form == named && o.record == rec }))
}

// at gives what a reference within the schema points to.
func (r *reader) at(ref string) (schema.Value, bool) {
	if ref == "#" {
		return r.root, true
	}
	path, ok := strings.CutPrefix(ref, "#/")
	if !ok || len(path) > 1000 {
		return schema.Value{}, false
	}
	v := r.root
	for step := range strings.SplitSeq(path, "/") {
		if plain, err := url.PathUnescape(step); err == nil {
			step = plain
		}
		step = strings.NewReplacer("~1", "/", "~0", "~").Replace(step)
		switch v.Kind {
		case schema.Object:
			v = v.Get(step)
		case schema.Array:
			i, err := strconv.Atoi(step)
			if err != nil || i < 0 || i >= len(v.Items) {
				return schema.Value{}, false
			}
			v = v.Items[i]
		}
		if v.Kind == schema.None {
			return v, false
		}
	}
	return v, true
}

func pointerName(ref string) string {
	if i := strings.LastIndexByte(ref, '/'); i >= 0 {
		return ref[i+1:]
	}
	return "Root"
}
