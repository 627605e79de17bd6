package setup

import (
	"encoding/json"
	"strings"
)

// zedFile is Zed's settings. On a Mac they lie in .config too.
func zedFile(p Place, s Scope) string {
	switch {
	case s == Project:
		return p.join(p.Folder, ".zed", "settings.json")
	case p.GOOS == "windows":
		return p.application("Zed", "settings.json")
	case p.GOOS == "darwin":
		return p.join(p.Home, ".config", "zed", "settings.json")
	case p.Getenv("FLATPAK_XDG_CONFIG_HOME") != "":
		return p.below("FLATPAK_XDG_CONFIG_HOME", nil, "zed", "settings.json")
	}
	return p.below("XDG_CONFIG_HOME", []string{".config"}, "zed", "settings.json")
}

// opencodeFile is OpenCode's configuration, which may have either ending: one that is
// there counts. It lies in .config on every system.
func opencodeFile(p Place, s Scope) string {
	file := p.below("XDG_CONFIG_HOME", []string{".config"}, "opencode", "opencode.json")
	if s == Project {
		file = p.join(p.Folder, "opencode.json")
	}
	if !p.exists(file) && p.exists(file+"c") {
		return file + "c"
	}
	return file
}

// qwenFile is Qwen Code's settings. Of a project, newer versions write .mcp.json and still
// read this file; older ones read this one alone.
func qwenFile(p Place, s Scope) string {
	if s == Project {
		return p.join(p.Folder, ".qwen", "settings.json")
	}
	return p.below("QWEN_HOME", []string{".qwen"}, "settings.json")
}

func copilotFile(p Place, s Scope) string {
	if s == Project {
		return p.join(p.Folder, ".github", "mcp.json")
	}
	return p.below("COPILOT_HOME", []string{".copilot"}, "mcp-config.json")
}

// clineFile is the file that Cline's command line and its extensions share. An extension of
// before has one in VS Code's folder, which a newer one takes over when it starts.
func clineFile(p Place, _ Scope) string {
	if file := p.Getenv("CLINE_MCP_SETTINGS_PATH"); file != "" {
		return file
	}
	const name = "cline_mcp_settings.json"
	if dir := p.Getenv("CLINE_DATA_DIR"); dir != "" {
		return p.join(dir, "settings", name)
	}
	shared := p.below("CLINE_DIR", []string{".cline"}, "data", "settings", name)
	before := p.join(p.clineExtension(), "settings", name)
	if !p.exists(p.folder(shared)) && p.exists(before) {
		return before
	}
	return shared
}

func clineMarks(p Place) []string {
	return []string{p.below("CLINE_DIR", []string{".cline"}), p.clineExtension()}
}

// clineExtension is where Cline's extension of VS Code keeps what is its own.
func (p Place) clineExtension() string {
	return p.join(p.folder(vscodeFile(p, User)), "globalStorage", "saoudrizwan.claude-dev")
}

// continueFile is one of the files that Continue reads in a folder for MCP servers of other
// clients' form, so that its own YAML stays as it is.
func continueFile(p Place, s Scope) string {
	if s == Project {
		return p.join(p.Folder, ".continue", "mcpServers", "paddock.json")
	}
	return p.below("CONTINUE_GLOBAL_DIR", []string{".continue"}, "mcpServers", "paddock.json")
}

func continueMarks(p Place) []string {
	return []string{p.below("CONTINUE_GLOBAL_DIR", []string{".continue"})}
}

func gooseFile(p Place, _ Scope) string {
	switch {
	case p.Getenv("GOOSE_PATH_ROOT") != "":
		return p.join(p.Getenv("GOOSE_PATH_ROOT"), "config", "config.yaml")
	case p.GOOS == "windows":
		return p.application("Block", "goose", "config", "config.yaml")
	}
	return p.below("XDG_CONFIG_HOME", []string{".config"}, "goose", "config.yaml")
}

// lmStudioFile lies in LM Studio's home, which a pointer file names where it is not the
// documented one (lmstudio-ai/lmstudio-bug-tracker#1371).
func lmStudioFile(p Place, _ Scope) string {
	home := p.join(p.Home, ".lmstudio")
	pointer, _, _ := strings.Cut(string(p.read(p.join(p.Home, ".lmstudio-home-pointer"))), "\n")
	if pointer = strings.TrimSpace(pointer); p.exists(pointer) {
		home = pointer
	}
	return p.join(home, "mcp.json")
}

// janFile lies in Jan's data folder, which its settings name once they are written.
func janFile(p Place, _ Scope) string {
	data := p.application()
	if p.GOOS == "linux" {
		data = p.below("XDG_DATA_HOME", []string{".local", "share"})
	}
	settings := p.join(data, "jan.ai.app", "settings.json")
	if before := p.application("Jan"); p.exists(before) {
		settings = p.join(before, "settings.json")
	}
	var is struct {
		Folder string `json:"data_folder"`
	}
	if err := json.Unmarshal(p.read(settings), &is); err == nil && is.Folder != "" {
		return p.join(is.Folder, "mcp_config.json")
	}
	return p.join(data, "Jan", "data", "mcp_config.json")
}

func cherryMarks(p Place) []string { return []string{p.application("CherryStudio")} }
