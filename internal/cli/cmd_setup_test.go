package cli

import "testing"

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
