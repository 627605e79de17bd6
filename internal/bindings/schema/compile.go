package schema

import (
	"encoding/json"
	"fmt"
	"regexp"
	"regexp/syntax"
	"slices"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"
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
	value = c.tidy(value)
	// Servers seldom say which draft they mean, and some say one and write another.
	tries := []*jsonschema.Draft{nil, jsonschema.Draft2020, jsonschema.Draft7, jsonschema.Draft4}
	var first error
	for _, draft := range tries {
		schema, err := c.compileAs(value, draft)
		if err == nil {
			c.schema = schema
			return
		}
		if first == nil {
			first = err
		}
	}
	c.ignore("the schema is not checked: %s", Cut(strings.Join(strings.Fields(first.Error()), " "), 300))
}

func (c *compiled) ignore(format string, args ...any) {
	if s := fmt.Sprintf(format, args...); len(c.ignored) < 20 && !slices.Contains(c.ignored, s) {
		c.ignored = append(c.ignored, s)
	}
}

// compileAs compiles the schema as what it says of itself (draft nil), or as a
// draft. The library panics on some schemas that are none; that is an error here.
func (c *compiled) compileAs(value Value, draft *jsonschema.Draft) (s *jsonschema.Schema, err error) {
	defer func() {
		if p := recover(); p != nil {
			s, err = nil, fmt.Errorf("the schema cannot be compiled: %v", p)
		}
	}()
	c.meter.left = maxSteps
	compiler := jsonschema.NewCompiler()
	compiler.UseLoader(noLoader{})
	compiler.UseRegexpEngine(c.pattern)
	compiler.RegisterVocabulary(&jsonschema.Vocabulary{URL: "tool:///steps", Compile: c.count})
	compiler.AssertVocabs()
	if draft != nil {
		value = without(value, "$schema")
		compiler.DefaultDraft(draft)
	}
	if err := compiler.AddResource(resource, value.plain()); err != nil {
		return nil, err
	}
	return compiler.Compile(resource)
}

// noLoader fetches nothing.
type noLoader struct{}

func (noLoader) Load(url string) (any, error) {
	return nil, fmt.Errorf("%s is not fetched", Quote(Cut(url, 100)))
}

// count has each part of the schema take its steps when it is validated.
func (c *compiled) count(_ *jsonschema.CompilerContext, object map[string]any) (jsonschema.SchemaExt, error) {
	steps := 1
	for _, keyword := range []string{"allOf", "anyOf", "oneOf"} {
		branches, _ := object[keyword].([]any)
		steps += len(branches)
	}
	return step{&c.meter, steps}, nil
}

type step struct {
	meter *meter
	steps int
}

func (s step) Validate(*jsonschema.ValidatorContext, any) { s.meter.spend(s.steps) }

// maxPattern bounds a pattern that is compiled, in bytes.
const maxPattern = 2000

// pattern compiles a regular expression. RE2 takes time in proportion to the text
// and to the program, so both are counted. What RE2 does not have matches.
func (c *compiled) pattern(source string) (jsonschema.Regexp, error) {
	p := &pattern{source: source, meter: &c.meter}
	if !supported(source) {
		return p, nil
	}
	p.regexp = regexp.MustCompile(source)
	parsed, err := syntax.Parse(source, syntax.Perl)
	if err != nil {
		return nil, err
	}
	program, err := syntax.Compile(parsed.Simplify())
	if err != nil {
		return nil, err
	}
	p.size = len(program.Inst)
	return p, nil
}

func supported(source string) bool {
	if len(source) > maxPattern {
		return false
	}
	_, err := regexp.Compile(source)
	return err == nil
}

type pattern struct {
	source string
	regexp *regexp.Regexp
	size   int
	meter  *meter
}

func (p *pattern) String() string { return p.source }

func (p *pattern) MatchString(s string) bool {
	if p.regexp == nil {
		return true
	}
	p.meter.spend(len(s)/100*p.size/10 + len(s)/100) // an instruction and byte take a nanosecond or less
	return p.regexp.MatchString(s)
}

// tidy leaves out of a schema what is not checked, and says so: remote references
// and patterns that RE2 does not have.
func (c *compiled) tidy(v Value) Value {
	if v.Kind != Object {
		return v
	}
	out := Value{Kind: Object}
	open := false // a pattern of patternProperties is gone: what it allowed is allowed
	for _, m := range v.Members {
		switch {
		case m.Name == "$ref" && !strings.HasPrefix(m.Value.Text, "#"):
			c.ignore("the reference to %s is not followed", Quote(Cut(m.Value.Text, 100)))
			continue
		case m.Name == "pattern" && m.Value.Kind == String && !supported(m.Value.Text):
			c.ignore("the pattern %s is not checked: RE2 does not have it", Quote(Cut(m.Value.Text, 100)))
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
		if !supported(m.Name) {
			c.ignore("names that match %s are not checked: RE2 does not have it", Quote(Cut(m.Name, 100)))
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
