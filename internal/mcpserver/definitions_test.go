package mcpserver

import (
	"encoding/json"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/jsonschema-go/jsonschema"

	"paddock/internal/approval"
	"paddock/internal/expect"
	"paddock/internal/fault"
	"paddock/internal/mcpserver/transport"
	"paddock/internal/sandbox"
	"paddock/internal/session"
)

func TestDefinitionsAreWhatClientsCanUse(t *testing.T) {
	name := regexp.MustCompile(`^[a-z_]{1,40}$`)
	for _, tool := range allTools() {
		d := tool.definition
		if !name.MatchString(d.Name) {
			t.Errorf("the name: got %q, want one like %s", d.Name, name)
		}
		if d.Title == "" {
			t.Errorf("%s: the title: got none, want one", d.Name)
		}
		if d.Description == "" {
			t.Errorf("%s: the description: got none, want one", d.Name)
		}
		if len(d.Description) > 1024 {
			t.Errorf("%s: the description: got %d bytes, want at most 1024", d.Name, len(d.Description))
		}
		if d.Annotations == nil {
			t.Errorf("%s: the annotations: got none, want some", d.Name)
		}
		if d.Annotations.ReadOnlyHint == (d.Annotations.DestructiveHint != nil) {
			t.Errorf("%s: whether it destroys is to be said of tools that change something", d.Name)
		}
		if d.Annotations.ReadOnlyHint && !d.Annotations.IdempotentHint {
			t.Errorf("%s: what only reads can be repeated", d.Name)
		}
		boundedArguments(t, d.Name, d.InputSchema.(*jsonschema.Schema))
	}
}

// boundedArguments sees that a schema describes and bounds what it takes.
func boundedArguments(t *testing.T, tool string, schema *jsonschema.Schema) {
	t.Helper()
	for arg, s := range schema.Properties {
		if s.Description == "" {
			t.Errorf("%s: the argument %s: s.Description: got none, want one", tool, arg)
		}
		if s.Type == "" {
			t.Errorf("%s: the argument %s: s.Type: got none, want one", tool, arg)
		}
		if s.Type == "object" {
			boundedArguments(t, tool, s)
			continue
		}
		if bounded := s.Pattern != "" || s.Enum != nil || s.MaxLength != nil || s.MaxItems != nil || s.Maximum != nil || s.Type == "boolean"; !bounded {
			t.Errorf("%s: the argument %s has no bounds", tool, arg)
		}
	}
}

// A token is about four characters of JSON.
func TestDefinitionsTakeFewTokens(t *testing.T) {
	for _, test := range []struct {
		name string
		sets []string
		most int
	}{
		{"the usual sets", usual, 3000},
		{"history", []string{"history"}, 1000},
		{"sandbox", []string{"sandbox"}, 1200},
	} {
		t.Run(test.name, func(t *testing.T) {
			total := 0
			for _, tool := range toolsWith(new(approval.Store), test.sets...) {
				n := len(transport.Encoded(tool.definition))
				t.Logf("%s: %d characters", tool.definition.Name, n)
				total += n
			}
			if t.Logf("%d characters", total); total == 0 {
				t.Error("the definitions take about: total: got 0, want more")
			} else if total/4 >= test.most {
				t.Errorf("the definitions take about: total/4: got %v, want less than %v", total/4, test.most)
			}
		})
	}
}

// A model is given a tool's name, its description and what it takes: clients keep
// titles, annotations and output schemas for themselves.
func TestModelsReadLittle(t *testing.T) {
	for _, test := range []struct {
		name string
		sets []string
		most int
	}{
		{"the usual sets", usual, 3000},
		{"skills", []string{"skills"}, 500},
	} {
		t.Run(test.name, func(t *testing.T) {
			total := 0
			for _, tool := range toolsWith(new(approval.Store), test.sets...) {
				d := tool.definition
				total += len(transport.Encoded(map[string]any{"name": d.Name, "description": d.Description, "input_schema": d.InputSchema}))
			}
			if t.Logf("%d characters", total); total == 0 {
				t.Error("the definitions take about: total: got 0, want more")
			} else if total/4 >= test.most {
				t.Errorf("the definitions take about: total/4: got %v, want less than %v", total/4, test.most)
			}
		})
	}
}

func TestInputSchemasSayWhatDecodingAccepts(t *testing.T) {
	tests := []struct{ name, tool, args string }{
		{"everything is given", "execute_code", `{"code":"1","language":"python","timeout":5,"session_id":"a-B_9","isolation":"wasm"}`},
		{"only what is needed", "execute_code", `{"code":"1"}`},
		{"code is missing", "execute_code", `{"language":"python"}`},
		{"code is empty", "execute_code", `{"code":""}`},
		{"code is a number", "execute_code", `{"code":1}`},
		{"an unknown language", "execute_code", `{"code":"1","language":"perl"}`},
		{"a timeout of zero", "execute_code", `{"code":"1","timeout":0}`},
		{"a whole number written as a fraction", "execute_code", `{"code":"1","timeout":5.0}`},
		{"half a second", "execute_code", `{"code":"1","timeout":0.5}`},
		{"a timeout as text", "execute_code", `{"code":"1","timeout":"5"}`},
		{"a number beyond all numbers", "execute_code", `{"code":"1","timeout":1e999}`},
		{"a session id with a slash", "destroy_session", `{"session_id":"a/b"}`},
		{"a session id of 100 characters", "destroy_session", `{"session_id":"` + strings.Repeat("a", 100) + `"}`},
		{"a session id of 101 characters", "destroy_session", `{"session_id":"` + strings.Repeat("a", 101) + `"}`},
		{"a session id with a line feed", "destroy_session", `{"session_id":"a\n"}`},
		{"characters are counted, not bytes", "list_files", `{"glob":"` + strings.Repeat("ä", 256) + `"}`},
		{"one character too many", "list_files", `{"glob":"` + strings.Repeat("ä", 257) + `"}`},
		{"as much memory as there may be", "create_session", `{"memory_mb":256}`},
		{"more memory than there may be", "create_session", `{"memory_mb":257}`},
		{"a flag", "edit_file", `{"path":"a","old":"b","new":"","replace_all":true}`},
		{"a flag as text", "edit_file", `{"path":"a","old":"b","new":"","replace_all":"true"}`},
		{"an array", "list_files", `[]`},
		{"no arguments where there are none", "list_runtimes", `{}`},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			k := slices.IndexFunc(allTools(), func(tool tool) bool { return tool.definition.Name == test.tool })
			resolved, err := allTools()[k].definition.InputSchema.(*jsonschema.Schema).Resolve(nil)
			if err != nil {
				t.Fatal(err)
			}
			var value any
			bySchema := json.Unmarshal([]byte(test.args), &value)
			if bySchema == nil {
				bySchema = resolved.Validate(value)
			}
			byDecoding := decode(json.RawMessage(test.args), paramsOf(test.tool))
			if (bySchema == nil) != (byDecoding == nil) {
				t.Errorf("the schema says %v, decoding says %v", bySchema, byDecoding)
			}
			if byDecoding != nil && fault.KindOf(byDecoding) != fault.Invalid {
				t.Errorf("the fault is %v", fault.KindOf(byDecoding))
			}
		})
	}
}

// paramsOf gives the params of a tool that the tests decode for.
func paramsOf(tool string) []param {
	langs, isos := []string{"python", "javascript", "typescript"}, []string{"wasm", "linux"}
	switch tool {
	case "execute_code":
		return new(executeInput).params(&Server{config: Config{MaxTimeout: 3600e9}}, langs, isos)
	case "create_session":
		return new(createInput).params(&Server{config: Config{MemoryBytes: 256 << 20}}, langs, isos)
	case "destroy_session":
		return []param{sessionID(new(session.ID), "").must()}
	case "edit_file":
		return new(editInput).params()
	case "list_files":
		return new(listInput).globParams()
	}
	return nil
}

func TestDecodingSaysWhatIsWrong(t *testing.T) {
	tests := []struct{ name, args, want string }{
		{"a name that is nearly right", `{"code":"1","langauge":"python"}`, `no argument "langauge" (did you mean "language"?)`},
		{"a name in capitals", `{"Code":"1"}`, `code is missing; there is no argument "Code" (did you mean "code"?)`},
		{"several mistakes at once", `{"timeout":-1,"session_id":"../x"}`, "code is missing; timeout is a whole number from 1 to 3600; session_id has 1 to 100"},
		{"a key twice", `{"code":"1","code":"2"}`, `the arguments hold "code" twice`},
		{"null where something is needed", `{"code":null}`, "code is a string"},
		{"half a surrogate pair", `{"code":"a\ud800b"}`, "half of a character"},
		{"half a surrogate pair after an escaped backslash", `{"code":"\\\ud800"}`, "half of a character"},
		{"the second half alone", `{"code":"\udc00\ud800"}`, "half of a character"},
		{"a number beyond 64 bits", `{"code":"1","timeout":99999999999999999999}`, "timeout is a whole number"},
		{"text instead of an object", `"code"`, "not a JSON object"},
		{"bytes that are no UTF-8", "{\"code\":\"\xff\"}", "not UTF-8"},
		{"an argument with a name to fill a log", `{"` + strings.Repeat("A", 5000) + `":1,"code":"1"}`, `AAA…"`},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			err := decode(json.RawMessage(test.args), paramsOf("execute_code"))
			if err == nil {
				t.Fatal("got no error, want one")
			}
			expect.Part(t, "err.Error()", err.Error(), test.want)
			if len(err.Error()) > 500 {
				t.Errorf("len(err.Error()): got %v, want at most 500", len(err.Error()))
			}
		})
	}
}

func TestDecodingKeepsEveryDigitAndCharacter(t *testing.T) {
	var n int64
	var s string
	params := []param{number("n", &n, -1<<62, 1<<62, ""), text("s", &s, 0, 100, "")}
	if err := decode(json.RawMessage(`{"n":4503599627370497001,"s":"\ud83d\ude00\\ud800"}`), params); err != nil {
		t.Fatal(err)
	}
	if n != 4503599627370497001 {
		t.Errorf("n: got %v, want 4503599627370497001", n)
	}
	if s != "😀\\ud800" {
		t.Errorf("s: got %q, want %q", s, "😀\\ud800")
	}
	if err := decode(json.RawMessage(`{"n":null}`), params); err != nil {
		t.Errorf("an optional argument that is null: %v", err)
	}
}

func TestInstructionsFitAndNameWhatRuns(t *testing.T) {
	many := make([]session.Runtime, 40)
	for k := range many {
		many[k] = session.Runtime{Isolation: "wasm", Runtime: sandbox.Runtime{Name: "python", Languages: []string{"python"}, Description: strings.Repeat("long ", 100)}}
	}
	s := &Server{config: Config{DefaultTimeout: 30e9, MaxTimeout: 3600e9}}
	for name, runtimes := range map[string][]session.Runtime{"none": nil, "one": many[:1], "many": many} {
		text := s.describe(runtimes, false)
		if alone := s.describe(runtimes, true); utf8.RuneCountInString(alone) > maxInstructions {
			t.Errorf("%s: a client each of whose calls is alone: utf8.RuneCountInString(alone): got %v, want at most %v",
				name, utf8.RuneCountInString(alone), maxInstructions)
		} else if !strings.Contains(alone, "NEW session") {
			t.Errorf("%s: a client each of whose calls is alone: got %q, want %q in it", name, alone, "NEW session")
		}
		if n := utf8.RuneCountInString(text); n > maxInstructions {
			t.Errorf("%s: the instructions have %d characters", name, n)
		}
		first, _, _ := strings.Cut(text, "\n")
		if len(runtimes) > 0 != strings.Contains(first, "python") {
			t.Errorf("%s: they begin with %q", name, first)
		}
	}
}

func FuzzArguments(f *testing.F) {
	f.Add([]byte(`{"code":"print(1)","timeout":3,"session_id":"a"}`))
	f.Add([]byte(`{"code":"\ud83d\ude00","timeout":1e2,"language":null}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		var in executeInput
		err := decode(data, in.params(&Server{config: Config{MaxTimeout: 3600e9}}, []string{"python"}, nil))
		if err == nil && (in.code == "" || !utf8.ValidString(in.code) || in.timeout < 0 || in.timeout > 3600 || in.session != "" && !transport.IsSessionName(string(in.session))) {
			t.Errorf("%q was decoded as %+v", data, in)
		}
	})
}

// What there is of a network is said where a model reads it, within the same bounds.
func TestDescriptionsSayWhatNetworkThereIs(t *testing.T) {
	rules := []string{"api.example.com", "GET *.example.org/v1/*"}
	s := &Server{config: Config{DefaultTimeout: 30e9, MaxTimeout: 3600e9, Reaches: func(network *[]string) []string {
		if network != nil {
			return *network
		}
		return rules
	}}}
	tool := s.executeTool([]string{"python"}, []string{"wasm"})
	if about := tool.definition.Description; !strings.Contains(about, "HTTP to allowed hosts") {
		t.Errorf("execute_code: got %q, want %q in it", about, "HTTP to allowed hosts")
	} else if strings.Contains(about, "no network") {
		t.Errorf("execute_code: got %q, want no %q in it", about, "no network")
	} else if tool.definition.Annotations.OpenWorldHint != nil {
		t.Errorf("execute_code: tool.definition.Annotations.OpenWorldHint: got %+v, want nil",
			tool.definition.Annotations.OpenWorldHint)
	}
	if text := s.describe(nil, false); !strings.Contains(text, "these hosts alone: api.example.com, GET *.example.org/v1/*. create_session's network") {
		t.Errorf("the instructions are %s", text)
	}
	rules = slices.Repeat([]string{"a-long-name.example.com"}, 1000)
	if text := s.describe(nil, false); !strings.Contains(text, "and more, which get_workspace_info lists") {
		t.Errorf("the instructions: got %q, want %q in it", text, "and more, which get_workspace_info lists")
	} else if utf8.RuneCountInString(text) > maxInstructions {
		t.Errorf("the instructions: utf8.RuneCountInString(text): got %v, want at most %v",
			utf8.RuneCountInString(text), maxInstructions)
	}
	rules = nil
	if about := s.executeTool([]string{"python"}, []string{"wasm"}).definition.Description; !strings.Contains(about, "no network") {
		t.Errorf("execute_code is %s", about)
	}
	if text := s.describe(nil, false); !strings.Contains(text, "There is no network") {
		t.Errorf("the instructions are %s", text)
	}
}

// Secrets are spoken of where there are some, and nowhere else.
func TestSecretsCanBeAskedForWhereThereAreSome(t *testing.T) {
	asks := func(s *Server) (named bool) {
		for _, p := range new(createInput).params(s, []string{"python"}, []string{"wasm"}) {
			named = named || p.name == "secrets"
		}
		return named
	}
	s := &Server{config: Config{DefaultTimeout: 30e9, MaxTimeout: 3600e9, MemoryBytes: 1 << 30}}
	if text := s.describe(nil, false); asks(s) {
		t.Errorf("without any it asks: got true, want false; the instructions are %s", text)
	} else if strings.Contains(text, "Secrets:") {
		t.Errorf("without any the instructions: got %q, want no %q in it", text, "Secrets:")
	}
	s.config.Secrets = []string{"GITHUB_TOKEN", "MAPS_KEY"}
	if text := s.describe(nil, false); !asks(s) {
		t.Errorf("it asks: got false, want true; the instructions are %s", text)
	} else if !strings.Contains(text, "the environment variables GITHUB_TOKEN, MAPS_KEY hold placeholders") {
		t.Errorf("the instructions: got %q, want %q in it",
			text, "the environment variables GITHUB_TOKEN, MAPS_KEY hold placeholders")
	}
	s.config.Secrets = slices.Repeat([]string{"A_LONG_NAME_OF_A_SECRET"}, 50)
	if text := s.describe(nil, false); utf8.RuneCountInString(text) > maxInstructions {
		t.Errorf("the instructions have %d characters", utf8.RuneCountInString(text))
	}
}
