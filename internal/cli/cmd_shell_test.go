package cli

import "testing"

func TestKeysThatDetachAreFound(t *testing.T) {
	for name, c := range map[string]struct {
		typed  []string
		passes string
		detach bool
	}{
		"ordinary keys":           {[]string{"ls\r"}, "ls\r", false},
		"detaching":               {[]string{"a\x1ddb"}, "a", true},
		"in two pieces":           {[]string{"a\x1d", "d"}, "a", true},
		"the key itself":          {[]string{"\x1d\x1dd"}, "\x1dd", false},
		"the key, something else": {[]string{"\x1d", "x"}, "\x1dx", false},
	} {
		var d detacher
		got, detached := "", false
		for _, typed := range c.typed {
			p, now := d.pass([]byte(typed))
			got, detached = got+string(p), detached || now
		}
		if got != c.passes || detached != c.detach {
			t.Errorf("%s: %q, %v", name, got, detached)
		}
	}
}

func TestWhatAsksATerminalIsNotReplayed(t *testing.T) {
	for _, query := range []string{
		"\x1b[6n", "\x1b[?6n", "\x1b[c", "\x1b[>c", "\x1b[>0c", "\x1b[=c", "\x1b[5n", "\x1b[?2026$p", "\x1b[>q", "\x1b[?u",
		"\x1b]10;?\x07", "\x1b]11;?\x1b\\", "\x1b]4;3;?\x07", "\x1bP+q544e\x1b\\", "\x1bP$qm\x1b\\",
	} {
		if got := terminalQueries.ReplaceAllString("a"+query+"b", ""); got != "ab" {
			t.Errorf("of %q is left %q", query, got)
		}
	}
	for _, text := range []string{"\x1b[31mred\x1b[0m", "\x1b[2J\x1b[H", "\x1b]0;title\x07", "\x1b[?1049h", "plain [6n"} {
		if got := terminalQueries.ReplaceAllString(text, ""); got != text {
			t.Errorf("of %q is left %q", text, got)
		}
	}
}
