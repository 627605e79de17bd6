package mcpserver

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"paddock/internal/expect"
	"paddock/internal/fault"
	"paddock/internal/mcpserver/transport"
	"paddock/internal/session"
)

// withHistory are the sets of a server that goes back.
var withHistory = Config{Tools: []string{"core", "files", "history"}}

func TestHistoryIsOfferedToWhomItIsAskedForAlone(t *testing.T) {
	for _, test := range []struct {
		name   string
		config Config
		want   bool
	}{{"nobody says", Config{}, false}, {"it is asked for", withHistory, true}, {"alone", Config{Tools: []string{"history"}}, true}} {
		t.Run(test.name, func(t *testing.T) {
			cs := connect(t, newServer(t, test.config, session.Config{}), "test", nil)
			list, err := cs.ListTools(t.Context(), nil)
			if err != nil {
				t.Fatal(err)
			}
			var names []string
			for _, tool := range list.Tools {
				names = append(names, tool.Name)
			}
			for _, name := range []string{"checkpoint_session", "list_checkpoints", "restore_session", "undo", "fork_session"} {
				if slices.Contains(names, name) != test.want {
					t.Errorf("there are %v", names)
				}
			}
			if strings.Contains(cs.InitializeResult().Instructions, "undo") != test.want {
				t.Errorf("the instructions are %s", cs.InitializeResult().Instructions)
			}
		})
	}
}

func TestWithoutASessionThereIsNoPast(t *testing.T) {
	s := newServer(t, withHistory, session.Config{})
	cs := connect(t, s, "test", nil)
	for name, args := range map[string]map[string]any{
		"checkpoint_session": {}, "list_checkpoints": {}, "restore_session": {"checkpoint": "1"}, "undo": {}, "fork_session": {"count": 2},
	} {
		if problem := field[map[string]any](t, use(t, cs, name, args), "error"); problem["code"] != string(fault.NotFound) {
			t.Errorf(`%s: problem["code"]: got %q, want %q`, name, problem["code"], string(fault.NotFound))
		} else if problem["hint"] == "" {
			t.Errorf(`%s: problem["hint"]: got none, want one`, name)
		}
		args["session_id"] = "nobodys"
		if problem := field[map[string]any](t, use(t, cs, name, args), "error"); problem["code"] != string(fault.NotFound) {
			t.Errorf("%s of a session that is not there gives %v", name, problem)
		}
	}
	if all, err := s.config.Sessions.List(session.Local); err != nil {
		t.Errorf("looking back made: got error %v, want none", err)
	} else if len(all) != 0 {
		t.Errorf("looking back made: got %v, want none", all)
	}
}

// line makes a session's checkpoints 1 to n, with labels where there are any. The
// first is the current one if it says so.
func line(n int, labels map[int]string) []session.Checkpoint {
	var all []session.Checkpoint
	for k := 1; k <= n; k++ {
		all = append(all, session.Checkpoint{ID: fmt.Sprint(k), Label: labels[k], Current: k == 1 && labels[1] == "here"})
	}
	return all
}

func TestALongListKeepsWhatHasALabel(t *testing.T) {
	everything := map[int]string{}
	for k := range 100 {
		everything[k] = "label"
	}
	here := maps.Clone(everything)
	here[1] = "here"
	tests := []struct {
		name        string
		all         []session.Checkpoint
		first, last string
		count       int
	}{
		{"none", nil, "", "", 0},
		{"few are all there, the newest first", line(3, nil), "3", "1", 3},
		{"just as many as there may be", line(maxCheckpoints, nil), "50", "1", 50},
		{"the oldest go", line(60, nil), "60", "11", 50},
		{"but for those with a label", line(60, map[int]string{2: "good"}), "60", "2", 50},
		{"of labels alone the newest stay", line(99, everything), "99", "50", 50},
		{"but for the current one", line(99, here), "99", "1", 50},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			before := slices.Clone(test.all)
			got := worthTelling(test.all)
			if len(got) != test.count {
				t.Fatalf("len(got): got %d, want %d: %v", len(got), test.count, got)
			}
			if test.count > 0 && (got[0].ID != test.first || got[len(got)-1].ID != test.last) {
				t.Errorf("got %v", got)
			}
			if !slices.EqualFunc(before, test.all, func(a, b session.Checkpoint) bool { return a.ID == b.ID }) {
				t.Error("the list that was given has changed")
			}
		})
	}
}

func TestWhatACheckpointChangedIsBounded(t *testing.T) {
	p := session.Checkpoint{ID: "7", Cause: "execute", Code: strings.Repeat("é", 1000), Label: "a \"label\"\n"}
	for k := range 300 {
		p.Variables = append(p.Variables, session.VariableChange{Name: fmt.Sprint("v", k, strings.Repeat("x", 500)), Change: "added"})
		p.Files = append(p.Files, session.Change{Path: fmt.Sprint("f", k, strings.Repeat("y", 4000)), Change: "modified", Size: 3})
	}
	got := checkpointOf(p)
	if n := len(transport.Encoded(got)); n > 8000 {
		t.Errorf("len(transport.Encoded(got)): got %v, want at most 8000", n)
	} else if got.Omitted != 2*(300-maxTold) {
		t.Errorf("got.Omitted: got %v, want %v", got.Omitted, 2*(300-maxTold))
	}
	if text := got.line(); strings.Contains(text, "\n") {
		t.Errorf("the line: got %q, want no %q in it", text, "\n")
	} else if !strings.Contains(text, fmt.Sprintf("and %d more", got.Omitted)) {
		t.Errorf("the line: got %q, want %q in it", text, fmt.Sprintf("and %d more", got.Omitted))
	}
	few := checkpointOf(session.Checkpoint{
		Variables: []session.VariableChange{{Name: "x", Change: "added"}, {Name: "y", Change: "modified"}, {Name: "z", Change: "removed"}},
		Files:     []session.Change{{Path: "a", Change: "removed"}, {Path: "b", Change: "added", Size: 5}},
	})
	if fmt.Sprint(few.Variables, few.Files) != "[+x ~y -z] [-a +b (5 bytes)]" {
		t.Errorf("got %v %v", few.Variables, few.Files)
	}
}

func TestManyChangesOfARestoreAreCounted(t *testing.T) {
	r := restoredTo("s", session.Restored{Changes: make([]session.Change, 1000), Variables: make([]session.VariableChange, 300)})
	expect.Equal(t, "the files that are listed", len(r.FilesChanged), maxChanges)
	expect.Equal(t, "the files that are not", r.FilesOmitted, 800)
	expect.Equal(t, "the variables that are listed", len(r.VariablesChanged), maxChanges)
	expect.Equal(t, "the variables that are not", r.VariablesOmitted, 100)
}

// TestASleepingSessionIsWokenByEachTool: a client sees no difference.
func TestASleepingSessionIsWokenByEachTool(t *testing.T) {
	s := newServer(t, withHistory, session.Config{})
	cs := connect(t, s, "test", nil)
	id := session.ID(field[string](t, use(t, cs, "execute_code", map[string]any{"language": "python", "code": "x = 7\nwrite(\"a.txt\", \"here\")"}), "session_id"))
	for _, call := range []struct {
		tool string
		args map[string]any
		want string
	}{
		{"read_file", map[string]any{"path": "a.txt"}, `"here"`},
		{"list_files", nil, `"a.txt"`},
		{"search_files", map[string]any{"pattern": "her"}, `"line":1`},
		{"execute_code", map[string]any{"code": "x"}, `"result":"7"`},
		{"list_checkpoints", nil, `"+x"`},
		{"checkpoint_session", map[string]any{"label": "seven"}, `"seven"`},
		{"restore_session", map[string]any{"checkpoint": "seven"}, `"undone"`},
		{"write_file", map[string]any{"path": "b.txt", "content": "b"}, `"b.txt"`},
		{"edit_file", map[string]any{"path": "b.txt", "old": "b", "new": "c"}, `"replaced":1`},
		{"undo", nil, `"b.txt"`},
		{"fork_session", nil, `"forks":["s-`},
	} {
		if err := s.config.Sessions.Sleep(session.Local, id); err != nil {
			t.Fatalf("before %s: %v", call.tool, err)
		}
		res := use(t, cs, call.tool, call.args)
		if got := string(transport.Encoded(res.StructuredContent)); res.IsError {
			t.Errorf("res.IsError: got true, want false: %s", got)
		} else if !strings.Contains(got, call.want) {
			t.Errorf("string(transport.Encoded(res.StructuredContent)): got %q, want %q in it", got, call.want)
		}
	}
	if err := s.config.Sessions.Sleep(session.Local, id); err != nil {
		t.Fatal(err)
	}
	if list, err := cs.ListResources(t.Context(), nil); err != nil {
		t.Errorf("the resources: got error %v, want none", err)
	} else if len(list.Resources) != 2 {
		t.Errorf("the resources: len(list.Resources): got %d, want 2: %v", len(list.Resources), list.Resources)
	}
	if err := s.config.Sessions.Sleep(session.Local, id); err != nil {
		t.Fatal(err)
	}
	read, err := cs.ReadResource(t.Context(), &mcp.ReadResourceParams{URI: fileURI(id, "a.txt")})
	if err != nil {
		t.Fatalf("the resource: got error %v, want none", err)
	}
	if read.Contents[0].Text != "here" {
		t.Errorf("the resource: read.Contents[0].Text: got %q, want %q", read.Contents[0].Text, "here")
	}
}
