package microsandbox

// CodeTold is how a program's result looks to microsandbox's clients, over MCP
// and JSON-RPC alike.
type CodeTold struct {
	Status   string `json:"status"` // "success" or "error"
	Language string `json:"language"`
	Output   []Line `json:"output"`
}

// TellCode gives a program's result.
func TellCode(language string, r Result) CodeTold {
	status := "error"
	if r.Success() {
		status = "success"
	}
	return CodeTold{Status: status, Language: language, Output: r.Output}
}

// CodeReply is a program's result over JSON-RPC. Some clients read what was
// printed as lines, others look for these two besides.
type CodeReply struct {
	CodeTold
	Error    string `json:"error"` // what was printed on stderr
	HasError bool   `json:"has_error"`
}

// replyCode gives a program's result.
func replyCode(language string, r Result) CodeReply {
	told := CodeReply{CodeTold: TellCode(language, r), HasError: !r.Success()}
	for _, line := range r.Output {
		if line.Stream == "stderr" {
			told.Error += line.Text + "\n"
		}
	}
	return told
}

// CommandTold is how a command's result looks.
type CommandTold struct {
	Command  string   `json:"command"`
	Args     []string `json:"args"`
	ExitCode int      `json:"exit_code"`
	Success  bool     `json:"success"`
	Output   []Line   `json:"output"`
}

// TellCommand gives a command's result.
func TellCommand(command string, args []string, r Result) CommandTold {
	if args == nil {
		args = []string{}
	}
	return CommandTold{Command: command, Args: args, ExitCode: r.Exit.Code, Success: r.Success(), Output: r.Output}
}

// MetricsTold is how a sandbox's metrics look; null is what is not known.
type MetricsTold struct {
	Name      string   `json:"name"`
	Namespace string   `json:"namespace"`
	Running   bool     `json:"running"`
	CPU       *float64 `json:"cpu_usage"`    // percent of a processor
	Memory    *int64   `json:"memory_usage"` // MiB
	Disk      *int64   `json:"disk_usage"`   // bytes
}

// TellMetrics gives those of several.
func TellMetrics(all []Metrics) []MetricsTold {
	told := []MetricsTold{}
	for _, m := range all {
		told = append(told, MetricsTold{Name: m.Sandbox, Namespace: m.Namespace, Running: m.Running, CPU: m.CPU, Memory: m.Memory, Disk: m.Disk})
	}
	return told
}
