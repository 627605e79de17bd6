package setup

import (
	"slices"
	"strings"
)

// Place is the machine and the user whose files are looked for.
type Place struct {
	// GOOS is the system, as the Go runtime calls it.
	GOOS string
	// Home is the user's home folder; empty: there is none.
	Home string
	// Folder is the project's.
	Folder string
	// Getenv gives a variable of the environment; empty: it is not set.
	Getenv func(string) string
	// Glob gives the files that a pattern names, as filepath.Glob does.
	Glob func(string) []string
	// Exists reports whether there is such a file or folder; nil: there is none.
	Exists func(string) bool
	// Read gives a small file; nil: there is none.
	Read func(string) []byte
	// Has reports whether a command is on the PATH; nil: it is not.
	Has func(command string) bool
}

func (p Place) exists(path string) bool { return p.Exists != nil && path != "" && p.Exists(path) }

func (p Place) has(command string) bool { return p.Has != nil && p.Has(command) }

func (p Place) read(path string) []byte {
	if p.Read == nil || path == "" {
		return nil
	}
	return p.Read(path)
}

// folder is what a file lies in.
func (p Place) folder(file string) string {
	return file[:max(0, strings.LastIndexAny(file, `/\`))]
}

// join joins what belongs together on the place's system; empty when the first
// part is.
func (p Place) join(parts ...string) string {
	if parts[0] == "" {
		return ""
	}
	separator := "/"
	if p.GOOS == "windows" {
		separator = `\`
	}
	parts[0] = strings.TrimRight(parts[0], separator)
	return strings.Join(parts, separator)
}

// below is what lies below the folder that a variable names, or else below one
// of the home folder's.
func (p Place) below(variable string, fallback []string, parts ...string) string {
	if dir := p.Getenv(variable); dir != "" {
		return p.join(slices.Concat([]string{dir}, parts)...)
	}
	return p.join(slices.Concat([]string{p.Home}, fallback, parts)...)
}

// application is what lies in the folder where the system's applications keep
// their settings.
func (p Place) application(parts ...string) string {
	switch p.GOOS {
	case "windows":
		return p.below("APPDATA", []string{"AppData", "Roaming"}, parts...)
	case "darwin":
		return p.join(slices.Concat([]string{p.Home, "Library", "Application Support"}, parts)...)
	}
	return p.below("XDG_CONFIG_HOME", []string{".config"}, parts...)
}

// claudeDesktopFile looks on Windows for the folder of a packaged application
// first, in either layout: such a one does not read what stands in APPDATA
// (anthropics/claude-code#26073).
func claudeDesktopFile(p Place, _ Scope) string {
	const file = "claude_desktop_config.json"
	if p.GOOS == "windows" {
		for _, layout := range [][]string{{"Claude-Data", "claude_*"}, {"Packages", "Claude_*", "LocalCache", "Roaming", "Claude"}} {
			pattern := p.below("LOCALAPPDATA", []string{"AppData", "Local"}, layout...)
			if found := p.Glob(pattern); len(found) > 0 {
				return p.join(found[0], file)
			}
		}
	}
	return p.application("Claude", file)
}

func claudeCodeFile(p Place, s Scope) string {
	if s == Project {
		return p.join(p.Folder, ".mcp.json")
	}
	return p.below("CLAUDE_CONFIG_DIR", nil, ".claude.json")
}

func cursorFile(p Place, s Scope) string {
	if s == Project {
		return p.join(p.Folder, ".cursor", "mcp.json")
	}
	return p.join(p.Home, ".cursor", "mcp.json")
}

func vscodeFile(p Place, s Scope) string {
	switch {
	case s == Project:
		return p.join(p.Folder, ".vscode", "mcp.json")
	case p.Getenv("VSCODE_PORTABLE") != "":
		return p.join(p.Getenv("VSCODE_PORTABLE"), "user-data", "User", "mcp.json")
	case p.Getenv("VSCODE_APPDATA") != "":
		return p.join(p.Getenv("VSCODE_APPDATA"), "Code", "User", "mcp.json")
	}
	return p.application("Code", "User", "mcp.json")
}

func codexFile(p Place, s Scope) string {
	if s == Project {
		return p.join(p.Folder, ".codex", "config.toml")
	}
	return p.below("CODEX_HOME", []string{".codex"}, "config.toml")
}

func geminiFile(p Place, s Scope) string {
	if s == Project {
		return p.join(p.Folder, ".gemini", "settings.json")
	}
	return p.below("GEMINI_CLI_HOME", nil, ".gemini", "settings.json")
}

func claudeCodeMarks(p Place) []string {
	return []string{claudeCodeFile(p, User), p.below("CLAUDE_CONFIG_DIR", []string{".claude"})}
}

func windsurfFile(p Place, _ Scope) string {
	return p.join(p.Home, ".codeium", "windsurf", "mcp_config.json")
}
