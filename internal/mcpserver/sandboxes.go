package mcpserver

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"math"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"paddock/internal/fault"
	"paddock/internal/mcpserver/execution"
	"paddock/internal/microsandbox"
	"paddock/internal/sandbox"
	"paddock/internal/session"
)

// sandboxTools are microsandbox's, with its names, parameters and results.
func (s *Server) sandboxTools() []tool {
	start := define("sandbox_start", "Start sandbox", "Start a Linux sandbox, or a stopped one again with its files. Stop it when you are done.", hints{idempotent: true},
		func(in *sandboxInput) []param { return append(in.name(), in.configParam()) }, sandboxStart)
	start.mayTakeLong = true // an image may have to be unpacked
	run := define("sandbox_run_code", "Run code in sandbox", "Run code in a started sandbox. Variables stay from call to call.", hints{destructive: true},
		func(in *sandboxInput) []param {
			return append(in.name(),
				text("code", &in.code, 0, maxCodeBytes, "Program").must(),
				choice("language", &in.language, []string{"python", "nodejs"}, "Its language").must())
		}, sandboxRunCode)
	command := define("sandbox_run_command", "Run command in sandbox", "Run a program with arguments in a started sandbox; no shell reads them.", hints{destructive: true},
		func(in *sandboxInput) []param {
			return append(in.name(),
				text("command", &in.command, 1, 4096, "Program, such as ls").must(),
				texts("args", &in.args, maxArguments, "Its arguments"))
		}, sandboxRunCommand)
	run.mayTakeLong, command.mayTakeLong = true, true
	return []tool{
		start,
		define("sandbox_stop", "Stop sandbox", "End all that runs in a sandbox. Its files stay.", hints{destructive: true, idempotent: true},
			func(in *sandboxInput) []param { return in.name() }, sandboxStop),
		run, command,
		define("sandbox_get_metrics", "Measure sandboxes", "Whether sandboxes run, and what they take of processor (%), memory (MiB) and disk (bytes).", hints{readOnly: true},
			func(in *sandboxInput) []param {
				return []param{
					text("namespace", &in.Namespace, 1, 63, "Namespace; * for all").must(),
					text("sandbox", &in.Sandbox, 1, 63, "Default: all of the namespace"),
				}
			}, sandboxMetrics),
	}
}

// Bounds of what the sandbox tools take.
const (
	maxArguments = 1000
	maxCodeBytes = 1 << 20
)

// sandboxInput is what they are asked for, each a part of it.
type sandboxInput struct {
	microsandbox.Name
	config         microsandbox.Settings
	configured     bool
	code, language string
	command        string
	args           []string
}

func (in *sandboxInput) name() []param {
	return []param{
		text("sandbox", &in.Sandbox, 1, 63, "Its name").must(),
		text("namespace", &in.Namespace, 1, 63, "Its namespace, such as default").must(),
	}
}

func (in *sandboxInput) configParam() param {
	c := &in.config
	return nested("config", []param{
		text("image", &c.Image, 0, 500, "Image, such as microsandbox/python or microsandbox/node"),
		number("memory", &c.Memory, 0, math.MaxInt32, "MiB"),
		number("cpus", &c.CPUs, 0, 256, "Processors"),
		texts("volumes", &c.Volumes, 64, "host:guest[:ro]"),
		texts("ports", &c.Ports, 64, "host:guest"),
		texts("envs", &c.Envs, 64, "NAME=value"),
		text("shell", &c.Shell, 0, 200, "Of scripts"),
		named("scripts", &c.Scripts, 64, 64<<10, "=", "NAME=commands"),
	}, "Settings").noting(&in.configured)
}

type sandboxStatus struct {
	Name      string `json:"name"`
	Namespace string `json:"namespace"`
	Running   bool   `json:"running"`
	Image     string `json:"image"`
}

func statusOf(st microsandbox.Status) sandboxStatus {
	return sandboxStatus{Name: st.Sandbox, Namespace: st.Namespace, Running: st.Running, Image: st.Image}
}

// sandboxes gives the service, which is there where the set is offered.
func (c *call) sandboxes() (*microsandbox.Service, error) {
	if c.server.config.Sandboxes == nil {
		return nil, fault.New(fault.Unsupported, "there are no named sandboxes here").WithHint("the operator can say why: paddock doctor")
	}
	return c.server.config.Sandboxes, nil
}

func sandboxStart(ctx context.Context, c *call, in sandboxInput) (sandboxStatus, answer, error) {
	boxes, err := c.sandboxes()
	if err != nil {
		return sandboxStatus{}, answer{}, err
	}
	var settings *microsandbox.Settings
	if in.configured {
		settings = &in.config
	}
	st, err := boxes.Start(ctx, c.bound.Owner, in.Name, settings)
	if err != nil {
		return sandboxStatus{}, answer{}, err
	}
	return statusOf(st), answer{texts: []string{fmt.Sprintf("Sandbox %s started successfully", in.Sandbox)}}, nil
}

func sandboxStop(ctx context.Context, c *call, in sandboxInput) (sandboxStatus, answer, error) {
	boxes, err := c.sandboxes()
	if err != nil {
		return sandboxStatus{}, answer{}, err
	}
	st, err := boxes.Stop(ctx, c.bound.Owner, in.Name)
	if err != nil {
		return sandboxStatus{}, answer{}, err
	}
	return statusOf(st), answer{texts: []string{fmt.Sprintf("Sandbox %s stopped successfully", in.Sandbox)}}, nil
}

func sandboxRunCode(ctx context.Context, c *call, in sandboxInput) (microsandbox.CodeTold, answer, error) {
	res, a, err := c.runInSandbox(ctx, in.Name, microsandbox.Request{Language: in.language, Code: in.code})
	if err != nil {
		return microsandbox.CodeTold{}, answer{}, err
	}
	return microsandbox.TellCode(in.language, res), a, nil
}

func sandboxRunCommand(ctx context.Context, c *call, in sandboxInput) (microsandbox.CommandTold, answer, error) {
	res, a, err := c.runInSandbox(ctx, in.Name, microsandbox.Request{Command: in.command, Args: in.args})
	if err != nil {
		return microsandbox.CommandTold{}, answer{}, err
	}
	return microsandbox.TellCommand(in.command, in.args, res), a, nil
}

// runInSandbox runs a program or a command, and reports what it prints meanwhile.
// What is too large for the result is in files of the sandbox's workspace.
func (c *call) runInSandbox(ctx context.Context, name microsandbox.Name, req microsandbox.Request) (res microsandbox.Result, a answer, err error) {
	boxes, err := c.sandboxes()
	if err != nil {
		return res, a, err
	}
	var kept execution.Filed
	req.Limit, req.QueueTimeout = maxOutput, queueTimeout
	req.Started = func(execution string) { c.execution = execution }
	req.Ended = func(res session.Result, put session.PutFunc) { kept = c.server.putAway(ctx, c.bound.Owner, res, put) }
	err = reporting(c.Notify, func(stdout, stderr io.Writer) (err error) {
		if c.Notify != nil {
			req.Stdout, req.Stderr = stdout, stderr
		}
		res, err = boxes.Run(ctx, c.bound.Owner, name, req)
		return err
	})
	if err != nil {
		return res, a, err
	}
	c.session, c.execution = res.Session, res.Execution
	ran := res.Result
	for _, s := range []struct {
		name   string
		file   execution.Place
		text   string
		stream session.Stream
	}{{"stdout", kept.Stdout, ran.Stdout, ran.StdoutStream}, {"stderr", kept.Stderr, ran.Stderr, ran.StderrStream}} {
		if s.file.Path != "" {
			res.Output = append(res.Output, microsandbox.Line{Stream: "stderr", Text: fmt.Sprintf("[%d bytes were printed to %s: %s in %s]", max(s.stream.Bytes, int64(len(s.text))), s.name, holds(s.file), s.file.Path)})
		}
		if lost := lostIn(s.name, s.stream, ran.Exit.Cause == sandbox.OutputExceeded); lost != "" {
			res.Output = append(res.Output, microsandbox.Line{Stream: "stderr", Text: "[" + lost + "]"})
		}
	}
	e, shown := describe(res.Result, kept)
	for _, d := range e.Displays {
		if said := d.told(); said != "" {
			res.Output = append(res.Output, microsandbox.Line{Stream: "stderr", Text: "[" + said + "]"})
		}
	}
	var b strings.Builder
	for _, line := range res.Output {
		b.WriteString(line.Text + "\n")
	}
	return res, answer{texts: []string{cmp.Or(strings.TrimSuffix(b.String(), "\n"), "(no output)")}, shown: shown}, nil
}

type sandboxList struct {
	Sandboxes []microsandbox.MetricsTold `json:"sandboxes"`
}

func sandboxMetrics(ctx context.Context, c *call, in sandboxInput) (sandboxList, answer, error) {
	boxes, err := c.sandboxes()
	if err != nil {
		return sandboxList{}, answer{}, err
	}
	all, err := boxes.Metrics(ctx, c.bound.Owner, in.Namespace, in.Sandbox)
	if err != nil {
		return sandboxList{}, answer{}, err
	}
	return sandboxList{Sandboxes: microsandbox.TellMetrics(all)}, answer{}, nil
}

// sandboxPrompts are microsandbox's two, by name, with the image of each.
var sandboxPrompts = map[string][2]string{
	"create_python_sandbox": {"Python", "microsandbox/python"},
	"create_node_sandbox":   {"Node.js", "microsandbox/node"},
}

func addSandboxPrompts(s *mcp.Server) {
	for name, about := range sandboxPrompts {
		s.AddPrompt(&mcp.Prompt{
			Name: name, Description: "Create a " + about[0] + " sandbox",
			Arguments: []*mcp.PromptArgument{
				{Name: "sandbox_name", Description: "Name of the new sandbox", Required: true},
				{Name: "namespace", Description: "Its namespace", Required: true},
			},
		}, func(_ context.Context, req *mcp.GetPromptRequest) (*mcp.GetPromptResult, error) {
			args := req.Params.Arguments
			text := fmt.Sprintf("Start a %s sandbox called %q in the namespace %q with sandbox_start: image %s, 512 MiB of memory, 1 processor. Work in /workspace. Stop it with sandbox_stop when you are done.",
				about[0], cmp.Or(args["sandbox_name"], "sandbox"), cmp.Or(args["namespace"], "default"), about[1])
			return &mcp.GetPromptResult{Description: "Create a " + about[0] + " sandbox", Messages: []*mcp.PromptMessage{{Role: "user", Content: &mcp.TextContent{Text: text}}}}, nil
		})
	}
}
