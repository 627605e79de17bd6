package schema

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"paddock/internal/pattern"
	"paddock/internal/textsafe"
)

// resource is the name of the schema in a compiler of its own. It is in no
// scheme that anything could fetch.
const resource = "tool:///schema"

// Keywords whose value is a schema, a list of schemas (or a schema), and an
// object of schemas. What is not in one of them is data, whatever it looks like.
var (
	oneSchema   = words("additionalItems additionalProperties contains else if items not propertyNames then unevaluatedItems unevaluatedProperties contentSchema")
	someSchemas = words("allOf anyOf oneOf prefixItems items")
	mapOfThem   = words("properties patternProperties $defs definitions dependentSchemas dependencies")
)

func words(s string) []string { return strings.Fields(s) }

// compile makes the schema ready, or leaves it out and says why.
func (c *compiled) compile(input json.RawMessage) {
	value, err := Decode(input, schemaLimits)
	if err != nil {
		c.ignore("the schema is not checked: %v", err)
		return
	}
	if value.Kind != Object && value.Kind != Bool {
		c.ignore("the schema is not checked: it is %s", value.Kind)
		return
	}
	c.patterns = pattern.NewCompiler(maxPatterns)
	value = c.tidy(value)
	c.weight = 2<<10*int64(count(value)) + 100*c.patterns.Weight() + int64(len(input))
	// Servers seldom say which draft they mean, and some say one and write another.
	tries := []*jsonschema.Draft{nil, jsonschema.Draft2020, jsonschema.Draft7, jsonschema.Draft4}
	var first error
	for _, draft := range tries {
		one, err := c.compileAs(value, draft)
		if err == nil {
			c.value, c.draft, c.free = value, draft, []*instance{one}
			return
		}
		if first == nil {
			first = err
		}
	}
	c.ignore("the schema is not checked: %s", textsafe.Shorten(strings.Join(strings.Fields(first.Error()), " "), 300))
}

func (c *compiled) ignore(format string, args ...any) {
	if s := fmt.Sprintf(format, args...); len(c.ignored) < 20 && !slices.Contains(c.ignored, s) {
		c.ignored = append(c.ignored, s)
	}
}

// compileAs compiles the schema as what it says of itself (draft nil), or as a
// draft. The library panics on some schemas that are none; that is an error here.
func (c *compiled) compileAs(value Value, draft *jsonschema.Draft) (one *instance, err error) {
	defer func() {
		if p := recover(); p != nil {
			one, err = nil, fmt.Errorf("the schema cannot be compiled: %v", p)
		}
	}()
	// What the library checks against the schema of schemas is bounded by their size.
	one = &instance{patterns: c.patterns}
	one.meter.begin(context.Background(), "", 1)
	defer one.meter.end()
	compiler := jsonschema.NewCompiler()
	compiler.UseLoader(noLoader{})
	compiler.UseRegexpEngine(one.pattern)
	compiler.RegisterVocabulary(&jsonschema.Vocabulary{URL: "tool:///steps", Compile: one.count})
	compiler.AssertVocabs()
	if draft != nil {
		value = without(value, "$schema")
		compiler.DefaultDraft(draft)
	}
	if err := compiler.AddResource(resource, value.plain()); err != nil {
		return nil, err
	}
	if one.schema, err = compiler.Compile(resource); err != nil {
		return nil, err
	}
	one.patterns = nil
	return one, nil
}

// noLoader fetches nothing.
type noLoader struct{}

func (noLoader) Load(url string) (any, error) {
	return nil, fmt.Errorf("%s is not fetched", textsafe.Quote(textsafe.Shorten(url, 100)))
}

// What the parts of a validation cost, in the steps of package pattern.
const (
	perVisit  = 250 // of a schema at a value
	perMember = 100 // of an object or a list that is visited
	perChoice = 50  // of an enum or the required names
)

// count has each part of the schema take its steps when it is validated.
func (i *instance) count(_ *jsonschema.CompilerContext, object map[string]any) (jsonschema.SchemaExt, error) {
	visits, choices := 1, 0
	for _, keyword := range []string{"allOf", "anyOf", "oneOf"} {
		branches, _ := object[keyword].([]any)
		visits += len(branches)
	}
	for _, keyword := range []string{"enum", "required"} {
		list, _ := object[keyword].([]any)
		choices += len(list)
	}
	unique, _ := object["uniqueItems"].(bool)
	return step{&i.meter, perVisit*visits + perChoice*choices, unique}, nil
}

type step struct {
	meter  *meter
	steps  int
	unique bool // all of a list is read for it
}

func (s step) Validate(_ *jsonschema.ValidatorContext, v any) {
	steps := s.steps
	switch v := v.(type) {
	case map[string]any:
		steps += perMember * len(v)
	case []any:
		steps += perMember * len(v)
		if s.unique {
			steps += perMember * countPlain(v)
		}
	case string:
		steps += len(v) / 16 // its length, its format
	}
	s.meter.spend(int64(steps))
}

// countPlain is count for what the library validates.
func countPlain(v any) int {
	n := 1
	switch v := v.(type) {
	case map[string]any:
		for _, member := range v {
			n += countPlain(member)
		}
	case []any:
		for _, item := range v {
			n += countPlain(item)
		}
	case string:
		n += len(v) / 1000
	}
	return n
}

// maxPatterns is what the patterns of one schema may weigh together; see
// [pattern.MaxWeight].
const maxPatterns = 5 * pattern.MaxWeight

// pattern compiles a regular expression of the schema; what is not supported
// matches. One that stands in arguments, where the schema has the format "regex",
// is taken as it is: who else's syntax it may be, nobody knows.
func (i *instance) pattern(source string) (jsonschema.Regexp, error) {
	p := &matcher{source: source, meter: &i.meter}
	if i.patterns != nil {
		p.regexp, _ = i.patterns.Compile(source)
		return p, nil
	}
	return p, nil
}

// supported tells whether a pattern is checked.
func (c *compiled) supported(source string) bool {
	_, err := c.patterns.Compile(source)
	return err == nil
}

// matcher is one pattern for the library; without a regexp it matches everything.
type matcher struct {
	source string
	regexp *pattern.Regexp
	meter  *meter
}

func (p *matcher) String() string { return p.source }

func (p *matcher) MatchString(s string) bool {
	if p.regexp == nil {
		return true
	}
	is, err := p.regexp.MatchString(s, p.meter.cost)
	if err != nil {
		panic(spent{err})
	}
	return is
}

// tidy leaves out of a schema what is not checked, and says so: remote references
// and patterns that RE2 does not have or that are too large.
func (c *compiled) tidy(v Value) Value {
	if v.Kind != Object {
		return v
	}
	out := Value{Kind: Object}
	open := false // a pattern of patternProperties is gone: what it allowed is allowed
	for _, m := range v.Members {
		switch {
		case m.Name == "$ref" && !strings.HasPrefix(m.Value.Text, "#"):
			c.ignore("the reference to %s is not followed", textsafe.Quote(textsafe.Shorten(m.Value.Text, 100)))
			continue
		case m.Name == "pattern" && m.Value.Kind == String && !c.supported(m.Value.Text):
			c.ignore("the pattern %s is not checked: RE2 does not have it, or it is too large", textsafe.Quote(textsafe.Shorten(m.Value.Text, 100)))
			continue
		case m.Name == "patternProperties":
			m.Value, open = c.tidyPatterns(m.Value)
		case m.Name == "enum":
			c.widest = max(c.widest, len(m.Value.Items))
		}
		m.Value = c.tidyKeyword(m.Name, m.Value)
		out.Members = append(out.Members, m)
	}
	if open {
		out = without(without(out, "additionalProperties"), "unevaluatedProperties")
	}
	return out
}

func (c *compiled) tidyKeyword(name string, v Value) Value {
	switch {
	case v.Kind == Object && slices.Contains(oneSchema, name):
		return c.tidy(v)
	case v.Kind == Array && slices.Contains(someSchemas, name):
		items := make([]Value, len(v.Items))
		for i, item := range v.Items {
			items[i] = c.tidy(item)
		}
		v.Items = items
	case v.Kind == Object && slices.Contains(mapOfThem, name):
		members := make([]Member, len(v.Members))
		for i, m := range v.Members {
			members[i] = Member{m.Name, c.tidy(m.Value)}
		}
		v.Members = members
	}
	return v
}

func (c *compiled) tidyPatterns(v Value) (kept Value, open bool) {
	kept = Value{Kind: v.Kind}
	for _, m := range v.Members {
		if !c.supported(m.Name) {
			c.ignore("names that match %s are not checked: RE2 does not have it, or it is too large", textsafe.Quote(textsafe.Shorten(m.Name, 100)))
			open = true
			continue
		}
		kept.Members = append(kept.Members, m)
	}
	return kept, open
}

// without gives an object without one of its members.
func without(v Value, name string) Value {
	v.Members = slices.DeleteFunc(slices.Clone(v.Members), func(m Member) bool { return m.Name == name })
	return v
}
