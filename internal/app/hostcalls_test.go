package app

import (
	"context"
	"strings"
	"testing"

	"paddock/internal/sandbox"
	"paddock/internal/session"
	"paddock/internal/skill"
)

// A script of a skill calls what the skill declares, and nothing that sessions may not.
func TestAScriptHasTheRightsThatItsSkillDeclares(t *testing.T) {
	var called []string
	all := func(_ context.Context, _ session.Run, c sandbox.Call) []byte {
		called = append(called, string(c.Body))
		return []byte(`{"value":1}`)
	}
	only := declaredOnly(skill.Manifest{Tools: []string{"github/get-*"}}, all)
	for body, may := range map[string]bool{
		`{"op":"call","server":"github","tool":"get-issue","arguments":{}}`: true,
		`{"op":"call","server":"github","tool":"delete","arguments":{}}`:    false,
		`{"op":"call","server":"github-2","tool":"get-issue"}`:              false,
		`{"op":"search","query":"x"}`:                                       false,
		`{"op":"call","op":"search","server":"github","tool":"get-issue"}`:  false,
		`nonsense`: false,
	} {
		called = nil
		answer := string(only(t.Context(), session.Run{}, sandbox.Call{Body: []byte(body)}))
		if may != (len(called) == 1) || may == strings.Contains(answer, `"kind":"denied"`) {
			t.Errorf("%s gives %s and calls %v", body, answer, called)
		}
	}
}

// What a request is for is read once: who answers is not told something else by it later.
func TestTheOperationOfARequest(t *testing.T) {
	for body, want := range map[string]string{
		`{"op":"net.open","host":"a.test"}`:  "net.open",
		` {"first":{"op":"no"},"op":"call"}`: "call",
		`{"op":"call","op":"net.open"}`:      "call",
		`{"op":7}`:                           "",
		`{"op":"call"`:                       "call",
		`{"other":[1,{"op":"no"}]}`:          "",
		`["op","call"]`:                      "",
		`nonsense`:                           "",
		``:                                   "",
	} {
		if got := operation([]byte(body)); got != want {
			t.Errorf("%s is for %q, want %q", body, got, want)
		}
	}
}
