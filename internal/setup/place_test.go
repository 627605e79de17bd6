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
		{"windsurf", linux, "", "", "/home/me/.codeium/windsurf/mcp_config.json"},
		{"windsurf", windows, "", "", `C:\Users\me\.codeium\windsurf\mcp_config.json`},
		{"zed", linux, "", "", "/home/me/.config/zed/settings.json"},
		{"zed", linux, "XDG_CONFIG_HOME=/x", "", "/x/zed/settings.json"},
		{"zed", linux, "XDG_CONFIG_HOME=/x,FLATPAK_XDG_CONFIG_HOME=/f", "", "/f/zed/settings.json"},
		{"zed", darwin, "XDG_CONFIG_HOME=/x", "", "/Users/me/.config/zed/settings.json"},
		{"zed", windows, "", "", `C:\Users\me\AppData\Roaming\Zed\settings.json`},
		{"zed project", linux, "", "", "/project/.zed/settings.json"},
		{"opencode", darwin, "", "", "/Users/me/.config/opencode/opencode.json"},
		{"opencode", windows, "", "", `C:\Users\me\.config\opencode\opencode.json`},
		{"opencode", linux, "XDG_CONFIG_HOME=/x", "/x/opencode/opencode.jsonc", "/x/opencode/opencode.jsonc"},
		{"opencode project", linux, "", "", "/project/opencode.json"},
		{"qwen", linux, "", "", "/home/me/.qwen/settings.json"},
		{"qwen", linux, "QWEN_HOME=/q", "", "/q/settings.json"},
		{"qwen project", linux, "", "", "/project/.qwen/settings.json"},
		{"copilot", darwin, "", "", "/Users/me/.copilot/mcp-config.json"},
		{"copilot", linux, "COPILOT_HOME=/c", "", "/c/mcp-config.json"},
		{"copilot project", linux, "", "", "/project/.github/mcp.json"},
		{"cline", linux, "", "", "/home/me/.cline/data/settings/cline_mcp_settings.json"},
		{"cline", windows, "", "", `C:\Users\me\.cline\data\settings\cline_mcp_settings.json`},
		{"cline", linux, "CLINE_DIR=/c", "", "/c/data/settings/cline_mcp_settings.json"},
		{"cline", linux, "CLINE_DIR=/c,CLINE_DATA_DIR=/d", "", "/d/settings/cline_mcp_settings.json"},
		{"cline", linux, "CLINE_MCP_SETTINGS_PATH=/m.json,CLINE_DATA_DIR=/d", "", "/m.json"},
		{"cline", darwin, "", "/Users/me/Library/Application Support/Code/User/globalStorage/saoudrizwan.claude-dev/settings/cline_mcp_settings.json", "/Users/me/Library/Application Support/Code/User/globalStorage/saoudrizwan.claude-dev/settings/cline_mcp_settings.json"},
		{"continue", linux, "", "", "/home/me/.continue/mcpServers/paddock.json"},
		{"continue", linux, "CONTINUE_GLOBAL_DIR=/c", "", "/c/mcpServers/paddock.json"},
		{"continue project", linux, "", "", "/project/.continue/mcpServers/paddock.json"},
		{"goose", darwin, "", "", "/Users/me/.config/goose/config.yaml"},
		{"goose", linux, "XDG_CONFIG_HOME=/x", "", "/x/goose/config.yaml"},
		{"goose", linux, "XDG_CONFIG_HOME=/x,GOOSE_PATH_ROOT=/g", "", "/g/config/config.yaml"},
		{"goose", windows, "", "", `C:\Users\me\AppData\Roaming\Block\goose\config\config.yaml`},
		{"lm-studio", linux, "", "", "/home/me/.lmstudio/mcp.json"},
		{"lm-studio", windows, "", "", `C:\Users\me\.lmstudio\mcp.json`},
		{"jan", linux, "", "", "/home/me/.local/share/Jan/data/mcp_config.json"},
		{"jan", darwin, "", "", "/Users/me/Library/Application Support/Jan/data/mcp_config.json"},
		{"jan", windows, "", "", `C:\Users\me\AppData\Roaming\Jan\data\mcp_config.json`},
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
			Exists: func(path string) bool { return path == c.there },
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

func TestAClientsOwnFileMaySayWhereItsServersAre(t *testing.T) {
	files := map[string]string{
		"/home/me/.lmstudio-home-pointer":                "/big/lm-studio\n",
		"/home/me/.local/share/jan.ai.app/settings.json": `{"data_folder": "/big/jan"}`,
	}
	at := Place{
		GOOS: "linux", Home: "/home/me", Getenv: func(string) string { return "" },
		Exists: func(path string) bool { return path == "/big/lm-studio" },
		Read:   func(path string) []byte { return []byte(files[path]) },
	}
	for name, want := range map[string]string{"lm-studio": "/big/lm-studio/mcp.json", "jan": "/big/jan/mcp_config.json"} {
		if file, err := Find(name).File(at, User); err != nil || file != want {
			t.Errorf("%s is at %s (%v), want %s", name, file, err, want)
		}
	}
	at.Exists = func(path string) bool { return path == "/home/me/.config/Jan" } // Jan of before
	files["/home/me/.config/Jan/settings.json"] = `{"data_folder": "/old/jan"}`
	for name, want := range map[string]string{"lm-studio": "/home/me/.lmstudio/mcp.json", "jan": "/old/jan/mcp_config.json"} {
		if file, err := Find(name).File(at, User); err != nil || file != want {
			t.Errorf("%s is at %s (%v), want %s", name, file, err, want)
		}
	}
}

func TestAClientIsThereWhereItLeftSomething(t *testing.T) {
	at := Place{GOOS: "linux", Home: "/home/me", Getenv: func(string) string { return "" }}
	for name, trace := range map[string]string{
		"claude-desktop": "/home/me/.config/Claude", "claude-code": "/home/me/.claude.json", "cursor": "/home/me/.cursor",
		"vscode": "/home/me/.config/Code/User", "codex": "/home/me/.codex", "gemini": "command gemini", "windsurf": "/home/me/.codeium/windsurf",
		"zed": "command zeditor", "opencode": "/home/me/.config/opencode", "qwen": "/home/me/.qwen", "copilot": "/home/me/.copilot",
		"cline":    "/home/me/.config/Code/User/globalStorage/saoudrizwan.claude-dev",
		"continue": "/home/me/.continue", "goose": "/home/me/.config/goose", "lm-studio": "/home/me/.lmstudio",
		"jan": "/home/me/.local/share/Jan/data", "cherry-studio": "/home/me/.config/CherryStudio", "open-webui": "command open-webui",
	} {
		at.Exists, at.Has = func(string) bool { return false }, func(string) bool { return false }
		if found, _ := Find(name).Installed(at); found {
			t.Errorf("%s is found where nothing is", name)
		}
		at.Exists = func(path string) bool { return path == trace }
		at.Has = func(command string) bool { return "command "+command == trace }
		if found, looked := Find(name).Installed(at); !found {
			t.Errorf("%s is not found at %s, but looked for at %v", name, trace, looked)
		}
	}
}

func TestAClientWithoutAFileSaysWhatToEnter(t *testing.T) {
	at := Place{GOOS: "linux", Home: "/home/me", Getenv: func(string) string { return "" }}
	if _, err := Find("cherry-studio").File(at, User); fault.KindOf(err) != fault.Unsupported {
		t.Errorf("Cherry Studio has a file (%v)", err)
	}
	steps, err := Find("cherry-studio").Steps(servers["stdio"])
	if err != nil || !strings.Contains(steps, "Import from JSON") || !strings.Contains(steps, `"command": "/usr/local/bin/paddock"`) {
		t.Errorf("Cherry Studio: %s (%v)", steps, err)
	}
	if _, err := Find("open-webui").Steps(servers["stdio"]); fault.KindOf(err) != fault.Unsupported {
		t.Errorf("Open WebUI starts a server (%v)", err)
	}
	for kind, want := range map[string]string{"http": "4. Auth: Bearer, and pdk_secret", "env": "4. Auth: Bearer, and the token that the variable PADDOCK_TOKEN has"} {
		steps, err := Find("open-webui").Steps(servers[kind])
		if err != nil || !strings.Contains(steps, want) || !strings.Contains(steps, "3. URL: "+servers[kind].URL) {
			t.Errorf("Open WebUI: %s (%v)", steps, err)
		}
	}
}

func TestATokenFromAVariableIsRefusedWhereAClientHasNone(t *testing.T) {
	for _, c := range clients {
		if c.http == nil || c.Manual() {
			continue
		}
		text, err := c.Print(servers["env"])
		switch c.Name {
		case "zed", "continue", "lm-studio", "jan":
			if fault.KindOf(err) != fault.Unsupported {
				t.Errorf("%s writes %s (%v)", c.Name, text, err)
			}
		default:
			if err != nil || !strings.Contains(text, "PADDOCK_TOKEN") {
				t.Errorf("%s writes %s (%v)", c.Name, text, err)
			}
		}
	}
}
