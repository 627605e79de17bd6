package cli

import (
	"bytes"
	"slices"
	"strings"
	"testing"
)

func TestSetupNamesASessionOfTheClients(t *testing.T) {
	for _, test := range []struct{ base, client, entry, want string }{
		{"http://127.0.0.1:5555/mcp", "cursor", "paddock", "http://127.0.0.1:5555/mcp/s/cursor"},
		{"http://127.0.0.1:5555/mcp/", "claude-code", "second", "http://127.0.0.1:5555/mcp/s/claude-code-second"},
		{"https://paddock.example/mcp/s/mine", "cursor", "paddock", "https://paddock.example/mcp/s/mine"},
		{"https://paddock.example/mcp?a=b", "cursor", "paddock", "https://paddock.example/mcp?a=b"},
	} {
		if got := keptURL(test.base, test.client, test.entry); got != test.want {
			t.Errorf("%+v: %s", test, got)
		}
	}
}

func TestAnswersOfAPersonWhoChoosesClients(t *testing.T) {
	installed := []clientJSON{{Client: "cursor", Title: "Cursor"}, {Client: "zed", Title: "Zed", HasEntry: true}}
	for answer, want := range map[string]string{
		"\n": "", "1\n": "cursor", "2, 1\r\n": "zed cursor", "all": "cursor zed", "Zed 2\n": "zed", "goose\n": "goose",
		"3\n": "!3", "0": "!0", "1,emacs\n": "!emacs",
	} {
		chosen, bad := chosenClients(answer, installed)
		got := strings.Join(chosen, " ")
		if bad != "" {
			got = "!" + bad
		}
		if got != want {
			t.Errorf("%q chooses %q, want %q", answer, got, want)
		}
	}
}

func TestAPersonIsAskedUntilTheAnswerIsClear(t *testing.T) {
	var out, errs bytes.Buffer
	cl := &cli{stdin: strings.NewReader("zet\n2\n"), stdout: &out, stderr: &errs}
	chosen, err := setupCommand{cl}.askClients([]clientJSON{{Client: "cursor", Title: "Cursor"}, {Client: "zed", Title: "Zed", HasEntry: true}})
	if err != nil || !slices.Equal(chosen, []string{"zed"}) {
		t.Errorf("it chose %q (%v)", chosen, err)
	}
	if !strings.Contains(out.String(), "  2  Zed (has paddock)\n") || !strings.Contains(errs.String(), "did you mean zed?") {
		t.Errorf("it printed\n%s\nand said\n%s", &out, &errs)
	}
	cl.stdin = strings.NewReader("")
	if chosen, err := (setupCommand{cl}).askClients(nil); chosen != nil || err != nil {
		t.Errorf("without an answer it chose %q (%v)", chosen, err)
	}
}
