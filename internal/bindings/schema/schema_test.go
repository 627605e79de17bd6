package schema

import (
	"encoding/json"
	"strings"
	"sync"
	"testing"

	"paddock/internal/fault"
)

const taken = `{"type":"object","properties":{
	"path":{"type":"string","minLength":1},
	"mode":{"enum":["r","w"]},
	"size":{"type":"integer","maximum":9007199254740992},
	"items":{"type":"array","items":{"type":"object","properties":{"id":{"type":"integer"}},"required":["id"]}},
	"odd name":{"type":["string","null"]},
	"either":{"anyOf":[{"type":"string"},{"type":"object","properties":{"n":{"type":"number"}},"required":["n"]}]}
	},"required":["path"],"additionalProperties":false}`

func TestArgumentsAreCheckedAndTheFieldIsNamed(t *testing.T) {
	for name, c := range map[string]struct{ arguments, want string }{
		"what is right":                    {`{"path":"a","mode":"r","size":9007199254740992,"odd name":null,"either":{"n":1}}`, ""},
		"a field that is missing":          {`{}`, `arguments: missing "path"`},
		"a field that is not there":        {`{"path":"a","paht":1}`, `arguments: there is no "paht"`},
		"a wrong type":                     {`{"path":3}`, `arguments.path: expected string, got number`},
		"a wrong type deep inside":         {`{"path":"a","items":[{"id":1},{"id":"x"}]}`, `arguments.items[1].id: expected integer, got string`},
		"a value that is not in the list":  {`{"path":"a","mode":"x"}`, `arguments.mode: expected one of "r", "w", got "x"`},
		"an integer one too large":         {`{"path":"a","size":9007199254740993}`, `arguments.size: expected at most 9007199254740992`},
		"a name that is not an identifier": {`{"path":"a","odd name":1}`, `arguments["odd name"]: expected null or string, got number`},
		"an empty text":                    {`{"path":""}`, `arguments.path: expected at least 1 characters, got 0`},
		"an alternative of the right type": {`{"path":"a","either":{"n":"x"}}`, `arguments.either.n: expected number, got string`},
		"none of the alternatives":         {`{"path":"a","either":1}`, `arguments.either: none of what is allowed: expected string, got number, or expected object, got number`},
		"two things at once":               {`{"path":1,"mode":2}`, `arguments.mode: expected one of "r", "w", got 2; arguments.path: expected string, got number`},
		"no object":                        {`[1]`, `the arguments are an array, not an object`},
		"nothing":                          {``, `the arguments cannot be read: it is not JSON`},
		"more than one value":              {`{} {}`, `the arguments cannot be read: there is more than one value`},
		"a name twice":                     {`{"path":"a","path":"b"}`, `the arguments cannot be read: the name "path" is there twice`},
		"an escape hidden in a value":      {`{"path":"a","mode":"\u202e\u001b[31m"}`, `got "\u202e\u001b[31m"`},
	} {
		t.Run(name, func(t *testing.T) {
			var v Validator
			err := v.Validate(t.Context(), "", json.RawMessage(taken), json.RawMessage(c.arguments))
			switch {
			case c.want == "" && err != nil:
				t.Fatalf("refused: %v", err)
			case c.want == "":
				return
			case fault.KindOf(err) != fault.Invalid || !strings.Contains(err.Error(), c.want):
				t.Fatalf("got  %v (%s)\nwant %s", err, fault.KindOf(err), c.want)
			}
		})
	}
}

func TestSchemasOfEveryDraftAreChecked(t *testing.T) {
	for name, c := range map[string]struct{ schema, right, wrong string }{
		"draft 4, said":      {`{"$schema":"http://json-schema.org/draft-04/schema#","properties":{"n":{"maximum":5,"exclusiveMaximum":true}}}`, `{"n":4}`, `{"n":5}`},
		"draft 4, not said":  {`{"properties":{"n":{"maximum":5,"exclusiveMaximum":true}}}`, `{"n":4}`, `{"n":5}`},
		"draft 7":            {`{"$schema":"http://json-schema.org/draft-07/schema#","definitions":{"p":{"const":1}},"properties":{"n":{"$ref":"#/definitions/p"}}}`, `{"n":1}`, `{"n":2}`},
		"draft 7, not said":  {`{"properties":{"n":{"items":[{"type":"string"}]}}}`, `{"n":["a"]}`, `{"n":[1]}`},
		"2019-09":            {`{"$schema":"https://json-schema.org/draft/2019-09/schema","properties":{"a":true},"unevaluatedProperties":false}`, `{"a":1}`, `{"b":1}`},
		"2020-12":            {`{"properties":{"n":{"prefixItems":[{"type":"string"}]}}}`, `{"n":["a"]}`, `{"n":[1]}`},
		"an unknown draft":   {`{"$schema":"https://elsewhere.example/own","properties":{"n":{"type":"string"}}}`, `{"n":"a"}`, `{"n":1}`},
		"false":              {`{"properties":{"n":false}}`, `{}`, `{"n":1}`},
		"one that recurs":    {`{"$defs":{"t":{"type":"object","properties":{"c":{"$ref":"#/$defs/t"}},"additionalProperties":false}},"$ref":"#/$defs/t"}`, `{"c":{"c":{}}}`, `{"c":{"c":{"d":1}}}`},
		"an anchor":          {`{"$defs":{"t":{"$anchor":"here","type":"string"}},"properties":{"n":{"$ref":"#here"}}}`, `{"n":"a"}`, `{"n":1}`},
		"allOf, not, if":     {`{"allOf":[{"required":["n"]}],"not":{"required":["m"]},"if":{"properties":{"n":{"const":1}}},"then":{"required":["k"]}}`, `{"n":2}`, `{"n":1}`},
		"integers as floats": {`{"properties":{"n":{"type":"integer"}}}`, `{"n":1.0}`, `{"n":1.5}`},
	} {
		t.Run(name, func(t *testing.T) {
			var v Validator
			if err := v.Validate(t.Context(), "", json.RawMessage(c.schema), json.RawMessage(c.right)); err != nil {
				t.Errorf("%s was refused: %v", c.right, err)
			}
			if err := v.Validate(t.Context(), "", json.RawMessage(c.schema), json.RawMessage(c.wrong)); fault.KindOf(err) != fault.Invalid {
				t.Errorf("%s was taken", c.wrong)
			}
			if ignored := v.Ignored(json.RawMessage(c.schema)); ignored != nil {
				t.Errorf("ignored: %v", ignored)
			}
		})
	}
}

func TestWhatCannotBeCheckedIsLeftToTheServerAndSaid(t *testing.T) {
	long := strings.Repeat("[", 300) + strings.Repeat("]", 300)
	for name, c := range map[string]struct{ schema, right, wrong, said string }{
		"a remote reference":     {`{"properties":{"n":{"$ref":"http://169.254.169.254/x"},"m":{"type":"string"}}}`, `{"n":1}`, `{"m":1}`, "169.254.169.254"},
		"a file":                 {`{"properties":{"n":{"$ref":"file:///etc/passwd"},"m":{"type":"string"}}}`, `{"n":1}`, `{"m":1}`, "file:///etc/passwd"},
		"a pattern of ECMA's":    {`{"properties":{"n":{"type":"string","pattern":"^(?!a)b$"}}}`, `{"n":"x"}`, `{"n":1}`, "(?!a)"},
		"a name's pattern":       {`{"patternProperties":{"^(?!a)":{"type":"string"}},"additionalProperties":false,"properties":{"m":{"type":"string"}}}`, `{"n":1}`, `{"m":1}`, "(?!a)"},
		"a huge pattern":         {`{"properties":{"n":{"type":"string","pattern":"` + strings.Repeat("a", 3000) + `"}}}`, `{"n":"x"}`, `{"n":1}`, "aaa"},
		"a schema that is none":  {`{"type":"wat"}`, `{"n":1}`, ``, "not checked"},
		"a reference to nothing": {`{"$ref":"#/$defs/x"}`, `{"n":1}`, ``, "not checked"},
		"a list":                 {`[]`, `{"n":1}`, ``, "not checked"},
		"no JSON":                {`{`, `{"n":1}`, ``, "not checked"},
		"ten megabytes":          {`{"description":"` + strings.Repeat("x", 10<<20) + `"}`, `{"n":1}`, ``, "not checked"},
		"a deep one":             {`{"default":` + long + `}`, `{"n":1}`, ``, "not checked"},
		"a reference to itself":  {`{"$ref":"#"}`, ``, ``, ""},
	} {
		t.Run(name, func(t *testing.T) {
			var v Validator
			if c.right != "" {
				if err := v.Validate(t.Context(), "", json.RawMessage(c.schema), json.RawMessage(c.right)); err != nil {
					t.Errorf("%s was refused: %v", c.right, err)
				}
			} else {
				_ = v.Validate(t.Context(), "", json.RawMessage(c.schema), json.RawMessage(`{}`)) // it has to end
			}
			if c.wrong != "" {
				if err := v.Validate(t.Context(), "", json.RawMessage(c.schema), json.RawMessage(c.wrong)); fault.KindOf(err) != fault.Invalid {
					t.Errorf("%s was taken", c.wrong)
				}
			}
			if said := strings.Join(v.Ignored(json.RawMessage(c.schema)), "; "); c.said != "" && !strings.Contains(said, c.said) {
				t.Errorf("said %q", said)
			}
		})
	}
}

// TestBombsEnd has schemas and arguments that would cost minutes, hours or all
// memory if their work were not counted. The test's own time limit would say so.
func TestBombsEnd(t *testing.T) {
	branches := &strings.Builder{} // 2^40 ways through forty definitions
	branches.WriteString(`{"$ref":"#/$defs/d0","$defs":{`)
	for i := range 40 {
		next := `{"$ref":"#/$defs/d` + string(rune('0'+(i+1)/10)) + string(rune('0'+(i+1)%10)) + `"}`
		name := `d` + string(rune('0'+i/10)) + string(rune('0'+i%10))
		if i == 0 {
			name = "d0"
		}
		branches.WriteString(`"` + name + `":{"anyOf":[` + next + `,` + next + `]},`)
	}
	branches.WriteString(`"d40":{"type":"string"}}}`)
	deep := strings.Repeat(`{"c":`, 60) + `1` + strings.Repeat(`}`, 60)
	many := strings.Repeat(`1,`, 200_000) + `1`
	enum := strings.TrimSuffix(strings.Repeat(`12345.5,`, 3000), ",")
	for name, c := range map[string]struct {
		schema, arguments string
		refused           bool
	}{
		"branches upon branches":  {branches.String(), `{}`, true},
		"branches of each member": {`{"anyOf":[{"properties":{"c":{"$ref":"#"}},"required":["x"]},{"properties":{"c":{"$ref":"#"}},"required":["x"]}]}`, deep, true},
		"a long list of numbers":  {`{"properties":{"l":{"items":{"enum":[` + enum + `]}}}}`, `{"l":[` + many + `]}`, true},
		"a regular expression":    {`{"properties":{"s":{"pattern":"(a+)+$"}}}`, `{"s":"` + strings.Repeat("a", 100_000) + `b"}`, true},
		"a pattern of repeats":    {`{"properties":{"s":{"pattern":"(x{0,30}){0,30}y"}}}`, `{"s":"` + strings.Repeat("x", 4<<20) + `"}`, true},
		"a huge exponent":         {`{"properties":{"n":{"maximum":5}}}`, `{"n":1e999999999}`, true},
		"a tiny number":           {`{"properties":{"n":{"multipleOf":5}}}`, `{"n":1e-999999999}`, true},
		"a million digits":        {`{"properties":{"n":{"type":"integer"}}}`, `{"n":` + strings.Repeat("9", 1_000_000) + `}`, true},
		"a huge exponent in it":   {`{"properties":{"n":{"maximum":1e999999999}}}`, `{"n":1}`, false},
		"deep arguments":          {`{}`, strings.Repeat(`{"c":`, 100_000), true},
		"four thousand parts":     {`{"anyOf":[` + strings.Repeat(`{"const":1},`, 1500) + `{"type":"object"}]}`, `{}`, false},
	} {
		t.Run(name, func(t *testing.T) {
			var v Validator
			err := v.Validate(t.Context(), "", json.RawMessage(c.schema), json.RawMessage(c.arguments))
			if c.refused != (fault.KindOf(err) == fault.Invalid) {
				t.Errorf("got %.200v", err)
			}
		})
	}
}

func TestAValidatorServesManyAtOnceAndForgetsTheOldest(t *testing.T) {
	var v Validator
	var wait sync.WaitGroup
	for range 8 {
		wait.Go(func() {
			for range 20 {
				if err := v.Validate(t.Context(), "", json.RawMessage(taken), json.RawMessage(`{"path":1}`)); err == nil {
					t.Error("taken")
				}
			}
		})
	}
	wait.Wait()
	first := v.find(json.RawMessage(taken))
	for i := range maxCompiled {
		v.Ignored(json.RawMessage(`{"maxProperties":` + string(rune('1'+i%9)) + strings.Repeat("0", i/9) + `}`))
	}
	if n := v.order.Len(); n != maxCompiled {
		t.Errorf("n = %d, want %d", n, maxCompiled)
	} else if len(v.known) != n {
		t.Errorf("len(v.known) = %d, want %d", len(v.known), n)
	}
	if v.find(json.RawMessage(taken)) == first {
		t.Error("the oldest is still there")
	}
}

func TestWhatIsLearnedIsWhatWasSeen(t *testing.T) {
	var learned json.RawMessage
	for _, result := range []string{`{"id":1,"name":"a","tags":["x"]}`, `{"id":1.5,"name":null,"extra":{"k":true}}`} {
		learned = Learn(learned, json.RawMessage(result))
	}
	want := `{"x-learned":true,"type":"object","properties":{"extra":{"type":"object","properties":{"k":{"type":"boolean"}},"required":["k"]},"id":{"type":"number"},"name":{"type":["null","string"]},"tags":{"type":"array","items":{"type":"string"}}},"required":["id","name"]}`
	if string(learned) != want {
		t.Errorf("got  %s\nwant %s", learned, want)
	}
	if !Learned(learned) {
		t.Error("a learned schema does not have the mark")
	}
	if Learned(json.RawMessage(`{"type":"object"}`)) {
		t.Error("a schema that was not learned has the mark")
	}
	if again := Learn(learned, json.RawMessage(`{"id":2,"name":"b"}`)); string(again) != want {
		t.Errorf("a result of a known kind made it %s", again)
	}
	other := Learn(Learn(nil, json.RawMessage(`{"id":1.5,"name":null,"extra":{"k":true}}`)), json.RawMessage(`{"id":1,"name":"a","tags":["x"]}`))
	if string(other) != want {
		t.Errorf("in another order it is %s", other)
	}
}

func TestAServersOwnSchemaIsNotLearnedOver(t *testing.T) {
	own := json.RawMessage(`{"type":"object"}`)
	if got := Learn(own, json.RawMessage(`[1]`)); string(got) != string(own) {
		t.Errorf("it became %s", got)
	}
	if got := Learn(nil, json.RawMessage(`{"a"`)); got != nil {
		t.Errorf("a broken result taught %s", got)
	}
}

func TestWhatIsLearnedIsBounded(t *testing.T) {
	wide, deep := map[string]any{}, any(1)
	for i := range 500 {
		wide["id"+strings.Repeat("x", i)] = map[string]int{"n": i}
	}
	for range 100 {
		deep = map[string]any{"a": deep, "b": []any{deep}}
		if text, _ := json.Marshal(deep); len(text) > 1<<16 {
			break
		}
	}
	bushy := func(depth int) any { return nil }
	bushy = func(depth int) any {
		m := map[string]any{}
		for i := range 12 {
			if depth == 0 {
				m[strings.Repeat("k", i+20)] = 1
			} else {
				m[strings.Repeat("k", i+20)] = bushy(depth - 1)
			}
		}
		return m
	}
	for name, v := range map[string]any{"wide": wide, "deep": deep, "bushy": bushy(3)} {
		text, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		got := Learn(nil, text)
		if len(got) > learnedBytes {
			t.Errorf("%s: len(got) = %d, want at most %d: %.200s", name, len(got), learnedBytes, got)
		} else if !Learned(got) {
			t.Errorf("%s: Learned(got) = false, want true", name)
		}
		var check Validator
		if err := check.Validate(t.Context(), "", got, text); err != nil {
			t.Errorf("%s: what was seen is not allowed: %v", name, err)
		}
	}
	if got := string(Learn(nil, json.RawMessage(mustJSON(t, wide)))); !strings.Contains(got, `"additionalProperties":{"type":"object","properties":{"n":{"type":"integer"}}`) {
		t.Errorf("ids are no names: %s", got)
	}
}

func mustJSON(t *testing.T, v any) []byte {
	t.Helper()
	text, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func FuzzValidate(f *testing.F) {
	f.Add(taken, `{"path":"a"}`)
	f.Add(`{"anyOf":[{"type":"string"},{"$ref":"#"}],"pattern":"(?=a)"}`, `{"a":[1,2,{"b":null}]}`)
	f.Add(`{"$schema":"http://json-schema.org/draft-04/schema#","id":"x","exclusiveMinimum":true}`, `{}`)
	f.Fuzz(func(t *testing.T, schema, arguments string) {
		if len(schema) > 4000 || len(arguments) > 4000 {
			return
		}
		var v Validator
		err := v.Validate(t.Context(), "", json.RawMessage(schema), json.RawMessage(arguments))
		if err != nil && fault.KindOf(err) != fault.Invalid {
			t.Errorf("a fault of kind %s: %v", fault.KindOf(err), err)
		}
		if err != nil && (strings.ContainsAny(err.Error(), "\x1b\x00\n") || len(err.Error()) > 8000) {
			t.Errorf("an error that is not to be shown: %q", err)
		}
		learned := Learn(nil, json.RawMessage(arguments))
		if learned != nil && v.Validate(t.Context(), "", json.RawMessage(`{"properties":{"v":`+string(learned)+`}}`), json.RawMessage(`{"v":`+arguments+`}`)) != nil {
			t.Errorf("%s does not allow %s", learned, arguments)
		}
	})
}

func TestAnErrorTellsWhichFieldIsWrong(t *testing.T) {
	const input = `{"type":"object","properties":{"to":{"type":"object","properties":{"name":{"type":"string"}},"required":["name"]},"n":{"type":"integer","minimum":1},"of":{"anyOf":[{"type":"string"},{"type":"integer"}]},"all":{"type":"array","items":{"type":"integer"}}},"required":["to"],"additionalProperties":false}`
	var v Validator
	for arguments, want := range map[string]string{
		`{"to":{"name":"a"}}`:                   "",
		`{}`:                                    "to",
		`{"to":{}}`:                             "to.name",
		`{"to":{"name":5}}`:                     "to.name",
		`{"to":{"name":"a"},"n":0}`:             "n",
		`{"to":{"name":"a"},"x":0}`:             "x",
		`{"to":{"name":"a"},"of":[]}`:           "of",
		`{"to":{"name":"a"},"all":[1,"2"]}`:     "all[1]",
		`{"to":{"name":"a"},"n":"a","of":true}`: "n",
	} {
		if got := Field(v.Validate(t.Context(), "", json.RawMessage(input), json.RawMessage(arguments))); got != want {
			t.Errorf("%s: the field is %q, want %q", arguments, got, want)
		}
	}
}
