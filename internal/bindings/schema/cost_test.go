package schema

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"paddock/internal/fault"
)

// Patterns of a schema took 35 seconds to compile, and memory without a bound.
func TestTheCostOfASchemasPatternsIsBounded(t *testing.T) {
	for name, one := range map[string]string{
		"repetitions":          `(?:` + strings.Repeat("a?b|", 400) + `c){1000}`,
		"ranges that fold":     `(?i)` + strings.Repeat("[A-\U0001e900]", 200),
		"many of middle sizes": `x{900}`,
		"classes of Unicode":   strings.Repeat(`[\\pL]`, 50),
	} {
		t.Run(name, func(t *testing.T) {
			var all []string
			for k := range 256 << 10 / (len(one) + 60) {
				all = append(all, fmt.Sprintf(`"p%d":{"pattern":"%s%d"}`, k, one, k))
			}
			all = all[:min(len(all), 1900)]
			schema := json.RawMessage(`{"properties":{` + strings.Join(all, ",") + `,"n":{"type":"string"}}}`)
			var v Validator
			if err := v.Validate(t.Context(), "", schema, json.RawMessage(`{"n":1}`)); fault.KindOf(err) != fault.Invalid {
				t.Error("the rest is not checked:", err)
			}
			if v.Ignored(schema) == nil {
				t.Error("nothing is said of what is not checked")
			}
			c := v.find(schema)
			if weight := c.patterns.Weight(); weight > maxPatterns {
				t.Errorf("the patterns weigh %d", weight)
			}
		})
	}
}

// Strings under 100 bytes counted as no step.
func TestEveryByteThatAPatternSeesIsCounted(t *testing.T) {
	schema := json.RawMessage(`{"properties":{"l":{"items":{"pattern":"^(?:a?){999}(?:a?){999}(?:a?){999}(?:a?){999}b$"}}}}`)
	list := strings.Repeat(`"`+strings.Repeat("a", 90)+`",`, 50_000)
	var v Validator
	err := v.Validate(t.Context(), "", schema, json.RawMessage(`{"l":[`+strings.TrimSuffix(list, ",")+`]}`))
	if fault.KindOf(err) != fault.Invalid {
		t.Errorf("got an error of the kind %q, want %q: %v", fault.KindOf(err), fault.Invalid, err)
	} else if !strings.Contains(err.Error(), "takes too long") {
		t.Errorf(`got error %q, want "takes too long" in it`, err.Error())
	}
}

func TestAValidationEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	var v Validator
	schema := json.RawMessage(`{"properties":{"l":{"items":{"type":"string"}}}}`)
	list := strings.TrimSuffix(strings.Repeat(`"a",`, 100_000), ",")
	err := v.Validate(ctx, "", schema, json.RawMessage(`{"l":[`+list+`]}`))
	if !errors.Is(err, context.Canceled) {
		t.Errorf("got %.200v", err)
	}
}

// A validation that takes long keeps no other from the same schema.
func TestNobodyWaitsForAnothersValidation(t *testing.T) {
	var v Validator
	schema := json.RawMessage(`{"properties":{"n":{"type":"string"}}}`)
	c := v.find(schema)
	busy, err := c.take()
	if err != nil {
		t.Fatalf("got error %v, want none", err)
	}
	if busy == nil {
		t.Fatal("busy is nil, want one")
	}
	if err := v.Validate(t.Context(), "", schema, json.RawMessage(`{"n":1}`)); fault.KindOf(err) != fault.Invalid {
		t.Error(err)
	}
	for range 2 * maxFree {
		one, err := c.take()
		if err != nil {
			t.Fatal(err)
		}
		defer c.give(one)
	}
	c.give(busy)
}

// The paths of all that was wrong were joined for each comparison: 8 MB of arguments
// took hours to be told about.
func TestManyProblemsWithLongPathsAreTold(t *testing.T) {
	schema := json.RawMessage(`{"additionalProperties":{"items":{"type":"string"}}}`)
	arguments := `{"` + strings.Repeat("x", 4<<20) + `":[` + strings.TrimSuffix(strings.Repeat("1,", 200_000), ",") + `]}`
	var v Validator
	err := v.Validate(t.Context(), "", schema, json.RawMessage(arguments))
	switch {
	case fault.KindOf(err) != fault.Invalid:
		t.Errorf("got an error of the kind %q, want %q: %v", fault.KindOf(err), fault.Invalid, err)
	case !strings.Contains(err.Error(), "and many more"):
		t.Errorf(`got error %q, want "and many more" in it`, err.Error())
	case len(err.Error()) > 2000:
		t.Errorf("len(err.Error()) = %d, want at most 2000", len(err.Error()))
	}
}

func TestWhatAValidatorKeepsIsBoundedInBytes(t *testing.T) {
	var v Validator
	for k := range 30 {
		v.Ignored(json.RawMessage(fmt.Sprintf(`{"maxProperties":%d,"default":[%s0]}`, k, strings.Repeat("0,", 3900))))
		if v.weight > maxKept || v.weight <= 0 {
			t.Fatalf("%d bytes are kept, want from 1 to %d", v.weight, maxKept)
		}
	}
	if n := v.order.Len(); n >= 30 {
		t.Errorf("n = %d, want less than 30", n)
	} else if n != len(v.known) {
		t.Errorf("n = %d, want %d", n, len(v.known))
	}
}
