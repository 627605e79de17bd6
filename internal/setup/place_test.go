package setup

import (
	"path"
	"strings"
	"testing"

	"paddock/internal/fault"
)

func TestEachClientsFileIsWhereItLooks(t *testing.T) {
	const (
		linux   = "linux /home/me"
		darwin  = "darwin /Users/me"
		windows = `windows C:\Users\me`
	)
	for _, c := range []struct {
		client, place string
		env           string // NAME=value, with commas
		there         string // a folder that exists
		want          string
	}{
		{"claude-desktop", linux, "", "", "/home/me/.config/Claude/claude_desktop_config.json"},
		{"claude-desktop", linux, "XDG_CONFIG_HOME=/x", "", "/x/Claude/claude_desktop_config.json"},
		{"claude-desktop", darwin, "", "", "/Users/me/Library/Application Support/Claude/claude_desktop_config.json"},
		{"claude-desktop", windows, "", "", `C:\Users\me\AppData\Roaming\Claude\claude_desktop_config.json`},
		{"claude-desktop", windows, `APPDATA=D:\roam\`, "", `D:\roam\Claude\claude_desktop_config.json`},
		{"claude-desktop", windows, `LOCALAPPDATA=D:\l`, `D:\l\Packages\Claude_pz\LocalCache\Roaming\Claude`, `D:\l\Packages\Claude_pz\LocalCache\Roaming\Claude\claude_desktop_config.json`},
		{"claude-desktop", windows, "", `C:\Users\me\AppData\Local\Claude-Data\claude_pz`, `C:\Users\me\AppData\Local\Claude-Data\claude_pz\claude_desktop_config.json`},
		{"claude-code", linux, "", "", "/home/me/.claude.json"},
		{"claude-code", darwin, "CLAUDE_CONFIG_DIR=/c", "", "/c/.claude.json"},
		{"claude-code", windows, "", "", `C:\Users\me\.claude.json`},
		{"claude-code project", linux, "CLAUDE_CONFIG_DIR=/c", "", "/project/.mcp.json"},
		{"cursor", windows, `APPDATA=D:\roam`, "", `C:\Users\me\.cursor\mcp.json`},
		{"cursor project", darwin, "", "", "/project/.cursor/mcp.json"},
		{"vscode", linux, "", "", "/home/me/.config/Code/User/mcp.json"},
		{"vscode", linux, "VSCODE_APPDATA=/v", "", "/v/Code/User/mcp.json"},
		{"vscode", linux, "VSCODE_APPDATA=/v,VSCODE_PORTABLE=/p", "", "/p/user-data/User/mcp.json"},
		{"vscode", darwin, "XDG_CONFIG_HOME=/x", "", "/Users/me/Library/Application Support/Code/User/mcp.json"},
		{"vscode", windows, "", "", `C:\Users\me\AppData\Roaming\Code\User\mcp.json`},
		{"vscode project", linux, "VSCODE_PORTABLE=/p", "", "/project/.vscode/mcp.json"},
		{"codex", darwin, "", "", "/Users/me/.codex/config.toml"},
		{"codex", linux, "CODEX_HOME=/c", "", "/c/config.toml"},
		{"codex project", linux, "CODEX_HOME=/c", "", "/project/.codex/config.toml"},
		{"gemini", windows, "", "", `C:\Users\me\.gemini\settings.json`},
		{"gemini", linux, "GEMINI_CLI_HOME=/g", "", "/g/.gemini/settings.json"},
		{"gemini project", linux, "", "", "/project/.gemini/settings.json"},
	} {
		name, scope, _ := strings.Cut(c.client, " ")
		if scope == "" {
			scope = string(User)
		}
		place := Place{
			Folder: "/project",
			Getenv: func(name string) string {
				for e := range strings.SplitSeq(c.env, ",") {
					if value, ok := strings.CutPrefix(e, name+"="); ok {
						return value
					}
				}
				return ""
			},
			Glob: func(pattern string) []string {
				slashes := func(s string) string { return strings.ReplaceAll(s, `\`, "/") }
				if ok, _ := path.Match(slashes(pattern), slashes(c.there)); ok {
					return []string{c.there}
				}
				return nil
			},
		}
		place.GOOS, place.Home, _ = strings.Cut(c.place, " ")
		got, err := Find(name).File(place, Scope(scope))
		if err != nil || got != c.want {
			t.Errorf("%s on %s with %s is at %s (%v), want %s", c.client, c.place, c.env, got, err, c.want)
		}
	}
}

func TestThereMayBeNoFileForAClient(t *testing.T) {
	none := Place{GOOS: "linux", Getenv: func(string) string { return "" }}
	for name, want := range map[string]fault.Kind{"cursor": fault.Unavailable, "claude-code": fault.Unavailable, "vscode": fault.Unavailable} {
		if file, err := Find(name).File(none, User); fault.KindOf(err) != want {
			t.Errorf("without a home folder %s has %s (%v)", name, file, err)
		}
	}
	if file, err := Find("claude-desktop").File(none, Project); fault.KindOf(err) != fault.Unsupported {
		t.Errorf("a project's Claude Desktop has %s (%v)", file, err)
	}
	if Find("emacs") != nil {
		t.Error("there is a client that is none")
	}
}
