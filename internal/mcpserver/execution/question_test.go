package execution

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/jsonschema-go/jsonschema"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"paddock/internal/approval"
)

func TestOnlyClientsThatShowFormsAreAsked(t *testing.T) {
	for says, want := range map[string]bool{"null": false, "{}": true, `{"form":{}}`: true, `{"url":{}}`: false, `{"form":{},"url":{}}`: true} {
		var can *mcp.ElicitationCapabilities
		if err := json.Unmarshal([]byte(says), &can); err != nil {
			t.Errorf("with %s: got error %v, want none", says, err)
		} else if CanElicit(can) != want {
			t.Errorf("with %s: CanElicit(can): got %v, want %v", says, CanElicit(can), want)
		}
	}
}

// A question shows what will be sent, and that text does not change how the question is read.
func TestAQuestionShowsDataAsData(t *testing.T) {
	p := Question(approval.Approval{ID: "ap-1", Call: approval.Call{Server: "mail", Tool: "send\nserver: bank", Arguments: json.RawMessage("{\"a\":\"\u202e\\u001b[2J\x7f\U000e0101\u3164\"}")}})
	if want := "server: mail\ntool: send\\u000aserver: bank\narguments: {\"a\":\"\\u202e\\u001b[2J\\u007f\\udb40\\udd01\\u3164\"}"; !strings.HasSuffix(p.Message, want) {
		t.Errorf("it reads %q", p.Message)
	}
	if offered := p.RequestedSchema.(*jsonschema.Schema).Properties[decisionField].Enum; len(offered) != 2 {
		t.Errorf("of a call that is shown whole %v is offered", offered)
	}
}

// What is not shown whole cannot be allowed where it is shown, whatever the client answers.
func TestWhoIsNotShownAllOfACallCanOnlyDenyIt(t *testing.T) {
	says := func(word string) *mcp.ElicitResult {
		return &mcp.ElicitResult{Action: "accept", Content: map[string]any{decisionField: word}}
	}
	text := strings.Repeat("ä", maxShown)
	for name, a := range map[string]approval.Approval{
		"arguments": {ID: "ap-1", Call: approval.Call{Server: "s", Tool: "t", Arguments: json.RawMessage(`{"begins": "` + text + `", "ends":1}`)}},
		"escapes":   {ID: "ap-1", Call: approval.Call{Server: "s", Tool: "t", Arguments: json.RawMessage(`{"begins": "` + strings.Repeat("\u202e", 800) + `", "ends":1}`)}},
		"its name":  {ID: "ap-1", Call: approval.Call{Server: "s", Tool: text, Arguments: json.RawMessage(`{"begins": 0, "ends":1}`)}},
	} {
		p := Question(a)
		if offered := p.RequestedSchema.(*jsonschema.Schema).Properties[decisionField].Enum; len(offered) != 1 {
			t.Errorf("%s: len(offered): got %d, want 1: %v", name, len(offered), offered)
		} else if offered[0] != "deny" {
			t.Errorf("%s: offered[0]: got %q, want %q", name, offered[0], "deny")
		}
		if n := len([]rune(p.Message)); n > maxShown+500 {
			t.Errorf("%s: the question has %d characters", name, n)
		}
		for _, want := range []string{`{"begins": `, `"ends":1}`, " characters)", "paddock approvals show ap-1", "paddock approvals grant ap-1"} {
			if !strings.Contains(p.Message, want) {
				t.Errorf("%s: %q is not in %q", name, want, p.Message)
			}
		}
		if got := VerdictOf(a, says("allow")); got != Dismissed {
			t.Errorf("%s: it is %q", name, got)
		}
		if got := VerdictOf(a, says("deny")); got != refused {
			t.Errorf("%s: denied it is %q", name, got)
		}
	}
}
