package setup

// clients are the clients that paddock is put into. Where each keeps its servers, and in
// which form, is what its makers document; where the documents are silent, what its
// source does.
var clients = []*Client{
	{
		Name: "claude-desktop", Title: "Claude Desktop", table: "mcpServers",
		Next:  map[Scope]string{User: "quit Claude Desktop, also in the tray or the menu bar, and start it again"},
		stdio: commandEntry, file: claudeDesktopFile,
	},
	{
		Name: "claude-code", Title: "Claude Code", table: "mcpServers",
		Next: map[Scope]string{
			User:    "start claude again; /mcp lists its servers",
			Project: "start claude in this folder; it asks whether this project's servers may be used",
		},
		stdio: typed("stdio", commandEntry), http: typed("http", urlEntry), variable: "${NAME}", file: claudeCodeFile,
		marks: claudeCodeMarks, commands: []string{"claude"},
	},
	{
		Name: "cursor", Title: "Cursor", table: "mcpServers", format: commentedJSON,
		Next: map[Scope]string{
			User:    "start Cursor again and see that the server is switched on among its MCP servers",
			Project: "open this folder in Cursor and switch the server on among its MCP servers",
		},
		stdio: commandEntry, http: urlEntry, variable: "${env:NAME}", file: cursorFile,
		commands: []string{"cursor"},
	},
	{
		Name: "vscode", Title: "VS Code", table: "servers", format: commentedJSON,
		Next: map[Scope]string{
			User:    "in VS Code, start the server with the command «MCP: List Servers»",
			Project: "open this folder in VS Code and start the server with the command «MCP: List Servers»",
		},
		stdio: typed("stdio", commandEntry), http: typed("http", urlEntry), variable: "${env:NAME}", file: vscodeFile,
		commands: []string{"code"},
	},
	{
		Name: "codex", Title: "Codex", table: "mcp_servers", format: tomlText,
		Next: map[Scope]string{
			User:    "start codex again; /mcp lists its servers",
			Project: "start codex in this folder; it reads this file only in a project that it trusts",
		},
		stdio: patient(commandEntry), http: patient(codexURLEntry), ownEnv: true, file: codexFile,
		commands: []string{"codex"},
	},
	{
		Name: "gemini", Title: "Gemini CLI", table: "mcpServers", format: commentedJSON,
		Next: map[Scope]string{
			User:    "start gemini again; /mcp lists its servers",
			Project: "start gemini in this folder; /mcp lists its servers",
		},
		stdio: commandEntry, http: geminiURLEntry, variable: "${NAME}", file: geminiFile,
		commands: []string{"gemini"},
	},
	{
		Name: "windsurf", Title: "Windsurf", table: "mcpServers",
		Next:  map[Scope]string{User: "in Windsurf, press the refresh button above the list of MCP servers"},
		stdio: commandEntry, http: windsurfURLEntry, variable: "${env:NAME}", file: windsurfFile,
		commands: []string{"windsurf"},
	},
	{
		Name: "zed", Title: "Zed", table: "context_servers", format: commentedJSON,
		Next: map[Scope]string{
			User:    "in Zed, see among the MCP servers of its settings that the dot beside it is green",
			Project: "open this folder in Zed; it starts this project's servers once you trust the project",
		},
		stdio: commandEntry, http: urlEntry, file: zedFile, commands: []string{"zed", "zeditor"},
	},
	{
		Name: "opencode", Title: "OpenCode", table: "mcp", format: commentedJSON,
		Next: map[Scope]string{
			User:    "start opencode again; opencode mcp list lists its servers",
			Project: "start opencode in this folder; opencode mcp list lists its servers",
		},
		stdio: opencodeEntry, http: typed("remote", urlEntry), variable: "{env:NAME}", file: opencodeFile,
		commands: []string{"opencode"},
	},
	{
		Name: "qwen", Title: "Qwen Code", table: "mcpServers", format: commentedJSON,
		Next: map[Scope]string{
			User:    "start qwen again; /mcp lists its servers",
			Project: "start qwen in this folder; it reads this file only in a project that it trusts",
		},
		stdio: commandEntry, http: geminiURLEntry, variable: "${NAME}", file: qwenFile,
		commands: []string{"qwen"},
	},
	{
		Name: "copilot", Title: "GitHub Copilot CLI", table: "mcpServers",
		Next: map[Scope]string{
			User:    "start copilot again; /mcp show lists its servers",
			Project: "start copilot in this folder; /mcp show lists its servers",
		},
		stdio: everyTool(typed("local", commandEntry)), http: everyTool(typed("http", urlEntry)), variable: "${NAME}", file: copilotFile,
		commands: []string{"copilot"},
	},
	{
		Name: "cline", Title: "Cline", table: "mcpServers",
		Next:  map[Scope]string{User: "in Cline, open the MCP servers and see that the dot beside it is green"},
		stdio: inSeconds("timeout", commandEntry), http: inSeconds("timeout", typed("streamableHttp", urlEntry)), variable: "${env:NAME}",
		file: clineFile, marks: clineMarks, commands: []string{"cline"},
	},
	{
		Name: "continue", Title: "Continue", table: "mcpServers", format: commentedJSON,
		Next: map[Scope]string{
			User:    "reload Continue; it uses MCP servers in agent mode",
			Project: "open this folder in Continue; it uses MCP servers in agent mode",
		},
		stdio: typed("stdio", commandEntry), http: typed("http", urlEntry), file: continueFile, ownFile: true,
		marks: continueMarks, commands: []string{"cn"},
	},
	{
		Name: "goose", Title: "goose", table: "extensions", format: yamlText,
		Next:  map[Scope]string{User: "start a new goose session"},
		stdio: inSeconds("timeout", gooseEntry), http: inSeconds("timeout", gooseURLEntry), variable: "${NAME}", file: gooseFile,
		commands: []string{"goose"},
	},
	{
		Name: "lm-studio", Title: "LM Studio", table: "mcpServers",
		Next:  map[Scope]string{User: "in LM Studio, switch the server on in a chat's list of integrations"},
		stdio: commandEntry, http: urlEntry, file: lmStudioFile, commands: []string{"lms"},
	},
	{
		Name: "jan", Title: "Jan", table: "mcpServers",
		Next:  map[Scope]string{User: "start Jan again and see in Settings, MCP Servers that the server is switched on"},
		stdio: active(commandEntry), http: active(typed("http", urlEntry)), file: janFile,
	},
	{
		Name: "cherry-studio", Title: "Cherry Studio", table: "mcpServers",
		Next:  map[Scope]string{User: "switch the server on in the list, and choose it in a chat"},
		stdio: typed("stdio", commandEntry), http: typed("streamableHttp", cherryURLEntry),
		enter: cherryStudio, marks: cherryMarks,
	},
	{
		Name: "open-webui", Title: "Open WebUI", table: "mcpServers",
		Next: map[Scope]string{User: "switch the tool on in a chat"},
		http: urlEntry, enter: openWebUI, commands: []string{"open-webui"},
	},
}
