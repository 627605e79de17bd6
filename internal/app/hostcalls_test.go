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
		if got := len(called) == 1; got != may {
			t.Errorf("%s: the tool was called: %v, want %v", body, got, may)
		}
		if got := strings.Contains(answer, `"kind":"denied"`); got == may {
			t.Errorf("%s: the answer is %s, want it denied: %v", body, answer, !may)
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

// Every answer but the network's goes through the redaction last, whatever the operation is
// called.
func TestAllAnswersButTheNetworksAreRedacted(t *testing.T) {
	says := func(text string) answer {
		return func(context.Context, session.Run, sandbox.Call) []byte { return []byte(text) }
	}
	redact := func(a answer) answer {
		return func(ctx context.Context, run session.Run, c sandbox.Call) []byte {
			return []byte("redacted(" + string(a(ctx, run, c)) + ")")
		}
	}
	h := &hostCalls{families: newFamilies(says("network"), redact, families{"": says("tools"), "files": says("files")})}
	for body, want := range map[string]string{
		`{"op":"net.open","host":"a.test"}`:   "network",
		`{"op":"net."}`:                       "network",
		`{"op":"net"}`:                        "redacted(tools)",
		`{"op":"network.open"}`:               "redacted(tools)",
		`{"op":"Net.open"}`:                   "redacted(tools)",
		`{"op":".net.open"}`:                  "redacted(tools)",
		`{"op":"call","server":"net.server"}`: "redacted(tools)",
		`{"op":"call","op":"net.open"}`:       "redacted(tools)",
		`{"op":"files.read"}`:                 "redacted(files)",
		`{"op":"unknown.thing"}`:              "redacted(tools)",
		`{}`:                                  "redacted(tools)",
		`nonsense`:                            "redacted(tools)",
	} {
		if got := string(h.Call(t.Context(), session.Run{}, sandbox.Call{Body: []byte(body)})); got != want {
			t.Errorf("%s is answered by %s, want %s", body, got, want)
		}
	}
}

// A family that is called like the network's does not take its place.
func TestOnlyTheNetworkAnswersUnredacted(t *testing.T) {
	says := func(text string) answer {
		return func(context.Context, session.Run, sandbox.Call) []byte { return []byte(text) }
	}
	all := newFamilies(says("network"), func(answer) answer { return says("redacted") }, families{"": says("tools"), "net": says("other")})
	for name, a := range all {
		want := "redacted"
		if name == "net" {
			want = "network"
		}
		if got := string(a(t.Context(), session.Run{}, sandbox.Call{})); got != want {
			t.Errorf("the family %q answers %s, want %s", name, got, want)
		}
	}
}
