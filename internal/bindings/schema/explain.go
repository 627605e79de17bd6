package schema

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"math/big"
	"slices"
	"sort"
	"strconv"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/santhosh-tekuri/jsonschema/v6/kind"
	"golang.org/x/text/language"
	"golang.org/x/text/message"

	"paddock/internal/fault"
	"paddock/internal/textsafe"
)

// maxProblems is how many fields one error names.
const maxProblems = 5

// maxSorted is how many are put in order for it: their paths may be megabytes long.
const maxSorted = 50

// english prints what the library says of a keyword that we have no sentence for.
var english = message.NewPrinter(language.English)

// problem is one thing that is wrong.
type problem struct {
	path  []string
	text  string
	field []string // the property itself, where the path is that of what lacks it
}

// explain makes a fault of what the library found in value; nil of nil.
func explain(err error, value Value) error {
	if err == nil {
		return nil
	}
	var found *jsonschema.ValidationError
	if !errors.As(err, &found) {
		return fault.New(fault.Invalid, "the arguments are not what the tool takes").WithCause(err)
	}
	problems := leaves(found)
	all := len(problems) <= maxSorted
	if !all {
		problems = problems[:maxSorted]
	}
	slices.SortStableFunc(problems, func(a, b problem) int {
		return cmp.Or(slices.Compare(a.path, b.path), strings.Compare(a.text, b.text))
	})
	lines := []string{}
	for _, p := range problems {
		line := place(p.path, value) + ": " + p.text
		if len(lines) == 0 || lines[len(lines)-1] != line {
			lines = append(lines, line)
		}
	}
	if more := len(lines) - maxProblems; more > 0 {
		text := fmt.Sprintf("and %d more", more)
		if !all {
			text = "and many more"
		}
		lines = append(lines[:maxProblems], text)
	}
	f := fault.New(fault.Invalid, "%s", strings.Join(lines, "; ")).
		WithHint("the tool's file, or search_tools with detail_level \"full\", shows what it takes")
	if len(problems) > 0 {
		f = f.WithCause(wrongField{strings.TrimPrefix(place(problems[0].field, value), "arguments.")})
	}
	return f
}

// wrongField is the first field that is wrong.
type wrongField struct{ name string }

// Error names it.
func (w wrongField) Error() string { return "the argument " + w.name + " is wrong" }

// Field gives the first field that an error of [Validator.Validate] is about, by its
// path; "" where it is about none.
func Field(err error) string {
	var w wrongField
	errors.As(err, &w)
	return w.name
}

// fieldOf is what a problem is about: where a property is missing or too much, that one.
func fieldOf(e *jsonschema.ValidationError) []string {
	at := e.InstanceLocation[:len(e.InstanceLocation):len(e.InstanceLocation)]
	switch k := e.ErrorKind.(type) {
	case *kind.Required:
		at = append(at, k.Missing[:min(1, len(k.Missing))]...)
	case *kind.AdditionalProperties:
		at = append(at, k.Properties[:min(1, len(k.Properties))]...)
	}
	return at
}

// leaves gives what is wrong at the ends of the library's tree. Of alternatives
// that all failed it takes the one that came nearest: it failed the deepest, and
// not by its type.
func leaves(e *jsonschema.ValidationError) []problem {
	switch e.ErrorKind.(type) {
	case *kind.AnyOf, *kind.OneOf:
		if best := nearest(e.Causes, len(e.InstanceLocation)); best != nil {
			return leaves(best)
		}
		if len(e.Causes) > 0 {
			return []problem{{e.InstanceLocation, expectedOneOf(e.Causes), e.InstanceLocation}}
		}
	case *kind.PropertyNames, *kind.Contains, *kind.MinContains:
		return []problem{{e.InstanceLocation, describe(e.ErrorKind), fieldOf(e)}}
	}
	if len(e.Causes) == 0 {
		return []problem{{e.InstanceLocation, describe(e.ErrorKind), fieldOf(e)}}
	}
	var all []problem
	for _, cause := range e.Causes {
		all = append(all, leaves(cause)...)
	}
	return all
}

// nearest gives the alternative that alone has the right type, if there is one.
func nearest(causes []*jsonschema.ValidationError, depth int) *jsonschema.ValidationError {
	var best *jsonschema.ValidationError
	for _, cause := range causes {
		if ofType(cause, depth) {
			continue
		}
		if best != nil {
			return nil
		}
		best = cause
	}
	return best
}

// ofType tells whether e says that the value itself is of a wrong type or value.
func ofType(e *jsonschema.ValidationError, depth int) bool {
	switch e.ErrorKind.(type) {
	case *kind.Type, *kind.Const, *kind.Enum, *kind.FalseSchema:
		return len(e.InstanceLocation) == depth
	}
	for _, cause := range e.Causes {
		if ofType(cause, depth) {
			return true
		}
	}
	return false
}

func expectedOneOf(causes []*jsonschema.ValidationError) string {
	texts, seen := []string{}, map[string]bool{}
	for _, cause := range causes {
		for _, p := range leaves(cause) {
			if !seen[p.text] && len(texts) < maxProblems {
				seen[p.text] = true
				texts = append(texts, p.text)
			}
		}
	}
	return "none of what is allowed: " + strings.Join(texts, ", or ")
}

// describe says what a keyword expected.
func describe(k jsonschema.ErrorKind) string {
	switch k := k.(type) {
	case *kind.Type:
		return "expected " + strings.Join(k.Want, " or ") + ", got " + k.Got
	case *kind.Required:
		return "missing " + quoteAll(k.Missing)
	case *kind.AdditionalProperties:
		return "there is no " + quoteAll(k.Properties)
	case *kind.Enum:
		return "expected one of " + values(k.Want) + ", got " + values([]any{k.Got})
	case *kind.Const:
		return "expected " + values([]any{k.Want}) + ", got " + values([]any{k.Got})
	case *kind.Pattern:
		return "expected what matches " + textsafe.Quote(textsafe.Shorten(k.Want, 200)) + ", got " + textsafe.Quote(textsafe.Shorten(k.Got, 60))
	case *kind.FalseSchema:
		return "nothing is allowed here"
	case *kind.Minimum:
		return "expected at least " + number(k.Want)
	case *kind.Maximum:
		return "expected at most " + number(k.Want)
	case *kind.ExclusiveMinimum:
		return "expected more than " + number(k.Want)
	case *kind.ExclusiveMaximum:
		return "expected less than " + number(k.Want)
	case *kind.MultipleOf:
		return "expected a multiple of " + number(k.Want)
	case *kind.MinLength:
		return fmt.Sprintf("expected at least %d characters, got %d", k.Want, k.Got)
	case *kind.MaxLength:
		return fmt.Sprintf("expected at most %d characters, got %d", k.Want, k.Got)
	case *kind.MinItems:
		return fmt.Sprintf("expected at least %d items, got %d", k.Want, k.Got)
	case *kind.MaxItems:
		return fmt.Sprintf("expected at most %d items, got %d", k.Want, k.Got)
	}
	return textsafe.Escape(textsafe.Shorten(k.LocalizedString(english), 300))
}

// values lists a few values as JSON.
func values(list []any) string {
	texts := []string{}
	for _, v := range list {
		if len(texts) == 20 {
			texts = append(texts, fmt.Sprintf("and %d more", len(list)-20))
			break
		}
		texts = append(texts, textsafe.Escape(textsafe.Shorten(fmt.Sprint(jsonOf(v)), 60)))
	}
	return strings.Join(texts, ", ")
}

// place writes a path as programs do: arguments.items[2]["odd name"].
func place(path []string, value Value) string {
	var b strings.Builder
	b.WriteString("arguments")
	for i, step := range path {
		if i == 12 {
			b.WriteString("…")
			break
		}
		switch {
		case value.Kind == Array:
			b.WriteString("[" + step + "]")
			n, err := strconv.Atoi(step)
			if err != nil || n < 0 || n >= len(value.Items) {
				value = Value{}
				continue
			}
			value = value.Items[n]
		case plainName(step):
			b.WriteString("." + step)
			value = value.Get(step)
		default:
			b.WriteString("[" + textsafe.Quote(textsafe.Shorten(step, 60)) + "]")
			value = value.Get(step)
		}
	}
	return b.String()
}

func plainName(s string) bool {
	for i, r := range s {
		if !(r == '_' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || i > 0 && r >= '0' && r <= '9') {
			return false
		}
	}
	return s != "" && len(s) <= 60
}

func quoteAll(names []string) string {
	names = append([]string(nil), names...)
	sort.Strings(names)
	quoted := []string{}
	for _, name := range names {
		if len(quoted) == 10 {
			quoted = append(quoted, "…")
			break
		}
		quoted = append(quoted, textsafe.Quote(textsafe.Shorten(name, 60)))
	}
	return strings.Join(quoted, ", ")
}

func jsonOf(v any) string {
	text, err := json.Marshal(v)
	if err != nil {
		return "…"
	}
	return string(text)
}

// number writes an exact number as people do.
func number(r *big.Rat) string {
	if r.IsInt() {
		return textsafe.Shorten(r.Num().String(), 60)
	}
	return strings.TrimRight(r.FloatString(12), "0")
}
