package mcpserver

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	"paddock/internal/fault"
	"paddock/internal/microsandbox"
	"paddock/internal/pkgproxy/install"
	"paddock/internal/sandbox"
	"paddock/internal/session"
	"paddock/internal/textsafe"
)

// aboutSession describes the session_id of most tools.
const aboutSession = "Or yours"

// Bounds of lists in results.
const (
	maxListed    = 500
	maxVariables = 200
	maxProcesses = 100
)

func (s *Server) coreTools(runtimes []session.Runtime) []tool {
	langs, isos := languages(runtimes), isolations(runtimes)
	destroys := hints{destructive: true, idempotent: true}
	return []tool{
		s.executeTool(langs, isos),
		define("list_runtimes", "Languages", "Versions, packages", hints{readOnly: true},
			func(*struct{}) []param { return nil }, listRuntimes),
		define("create_session", "Create session",
			"Make one.", hints{},
			func(in *createInput) []param { return in.params(s, langs, isos) }, createSession),
		define("destroy_session", "Destroy session", "Delete session and files.", destroys,
			func(in *sessionInput) []param { return []param{sessionID(&in.session, "Which").must()} }, destroySession),
		s.installTool(),
		define("cancel_execution", "Cancel", "Stop code; keep variables.", hints{idempotent: true},
			func(in *cancelInput) []param {
				return []param{
					sessionID(&in.session, aboutSession),
					text("execution_id", &in.execution, 0, 100, "Or all"),
				}
			}, cancelExecution),
		define("get_workspace_info", "Inspect", "Variables, files, packages, network.", hints{readOnly: true},
			(*sessionInput).params, workspaceInfo),
		define("reset_workspace", "Reset session", "Clear variables and files.", destroys,
			(*sessionInput).params, resetWorkspace),
	}
}

// sessionInput names a session and nothing else.
type sessionInput struct{ session session.ID }

func (in *sessionInput) params() []param { return []param{sessionID(&in.session, aboutSession)} }

type runtimeList struct {
	Runtimes []runtimeInfo `json:"runtimes" listed:"true"`
}

type runtimeInfo struct {
	Name        string   `json:"name"`
	Languages   []string `json:"languages"`
	Version     string   `json:"version"`
	Description string   `json:"description"`
	Isolation   string   `json:"isolation"`
	Packages    []string `json:"packages"`
}

func listRuntimes(ctx context.Context, c *call, _ struct{}) (runtimeList, answer, error) {
	out := runtimeList{Runtimes: []runtimeInfo{}}
	for _, r := range c.server.config.Sessions.Runtimes(ctx) {
		out.Runtimes = append(out.Runtimes, runtimeInfo{
			Name: r.Name, Languages: listOf(r.Languages), Version: r.Version, Description: r.Description,
			Isolation: r.Isolation, Packages: listOf(r.Packages),
		})
	}
	return out, answer{}, nil
}

type createInput struct {
	session                               session.ID
	language, name, isolation, image, dir string
	memory, ttl                           int64
	servers, network, secrets             []string
	chosen, narrowed, kept                bool // servers, network, secrets were given
}

func (in *createInput) params(s *Server, langs, isos []string) []param {
	all := []param{
		choice("language", &in.language, langs, "Default"),
		sessionID(&in.session, "Or random"),
		text("name", &in.name, 0, 100, "Title"),
		choice("cwd", &in.dir, []string{session.Workspace, session.Root}, "Starts in"),
		choice("isolation", &in.isolation, isos, "Sandbox"),
		number("memory_mb", &in.memory, 1, max(1, s.config.MemoryBytes>>20), "MiB"),
		number("ttl_seconds", &in.ttl, 1, 365*24*3600, "Unused"),
	}
	all = append(all, texts("network", &in.network, 100, "Hosts; else all").noting(&in.narrowed))
	if s.config.Servers != nil {
		all = append(all, texts("servers", &in.servers, 100, "SERVER or SERVER/get_*").noting(&in.chosen))
	}
	if len(s.config.Secrets) > 0 {
		all = append(all, texts("secrets", &in.secrets, 100, "Names; else all").noting(&in.kept))
	}
	if slices.Contains(isos, imaged) {
		all = append(all, text("image", &in.image, 0, 512, "For "+imaged))
	}
	return all
}

// imaged is the isolation whose sessions have images.
const imaged = microsandbox.Isolation

// settings are what the session is made with.
func (in *createInput) settings() session.Settings {
	set := session.Settings{
		Language: in.language, Name: in.name, Dir: in.dir, Isolation: in.isolation, MemoryBytes: in.memory << 20, TTL: time.Duration(in.ttl) * time.Second,
	}
	if in.chosen {
		set.Servers = &in.servers
	}
	if in.narrowed {
		set.Network = &in.network
	}
	if in.kept {
		set.Secrets = &in.secrets
	}
	if in.image != "" {
		set.Isolation, set.Machine = cmp.Or(set.Isolation, imaged), &session.Machine{Image: in.image}
	}
	return set
}

type created struct {
	SessionID session.ID `json:"session_id" listed:"true"`
	Language  string     `json:"language"`
	Isolation string     `json:"isolation"`
	CreatedAt string     `json:"created_at"`
	ExpiresAt string     `json:"expires_at"`
}

func createSession(ctx context.Context, c *call, in createInput) (created, answer, error) {
	if err := c.server.checkServers(in.servers); err != nil {
		return created{}, answer{}, err
	}
	settings := in.settings()
	settings.Name = cmp.Or(settings.Name, c.clientName())
	info, err := c.server.config.Sessions.Create(ctx, c.bound.Owner, in.session, settings)
	if err != nil {
		return created{}, answer{}, err
	}
	c.session = info.ID
	return created{
		SessionID: info.ID, Language: info.Settings.Language, Isolation: info.Isolation,
		CreatedAt: timestamp(info.CreatedAt), ExpiresAt: timestamp(info.ExpiresAt),
	}, answer{}, nil
}

type destroyed struct {
	Destroyed bool `json:"destroyed"`
}

func destroySession(ctx context.Context, c *call, in sessionInput) (destroyed, answer, error) {
	c.session = in.session
	if err := c.server.config.Sessions.Destroy(ctx, c.bound.Owner, in.session); err != nil {
		return destroyed{}, answer{}, err
	}
	c.server.defaults.forget(c.bound, in.session)
	return destroyed{Destroyed: true}, answer{}, nil
}

type cancelInput struct {
	session   session.ID
	execution string
}

type cancelled struct {
	Cancelled bool   `json:"cancelled"`
	Count     int    `json:"count"`
	Reason    string `json:"reason,omitempty"`
}

// cancelExecution makes no session: where there is none nothing runs.
func cancelExecution(_ context.Context, c *call, in cancelInput) (cancelled, answer, error) {
	id := in.session
	if id == "" {
		id = c.server.defaultOf(c.bound)
	}
	if id == "" {
		return cancelled{Reason: "nothing has run yet"}, answer{}, nil
	}
	if in.session != "" {
		c.server.Named(c.bound.Owner, id)
	}
	c.session, c.execution = id, in.execution
	n, err := c.server.config.Sessions.Cancel(c.bound.Owner, id, in.execution)
	if err != nil && (in.session != "" || fault.KindOf(err) != fault.NotFound) {
		return cancelled{}, answer{}, err
	}
	switch {
	case n > 0:
		return cancelled{Cancelled: true, Count: n}, answer{}, nil
	case in.execution != "":
		return cancelled{Reason: "no such execution runs or waits in this session"}, answer{}, nil
	}
	return cancelled{Reason: "nothing runs in this session"}, answer{}, nil
}

type sessionInfo struct {
	SessionID      session.ID    `json:"session_id"`
	Name           string        `json:"name,omitempty"`
	Language       string        `json:"language"`
	Isolation      string        `json:"isolation"`
	State          session.State `json:"state"`
	CreatedAt      string        `json:"created_at"`
	LastUsedAt     string        `json:"last_used_at"`
	ExpiresAt      string        `json:"expires_at"`
	ExecutionCount int64         `json:"execution_count"`
	Variables      []variable    `json:"variables"`
	Imports        []string      `json:"imports"`
	Files          []file        `json:"files"`
	More           bool          `json:"more,omitempty"` // there are more variables or files than are listed
	Packages       []string      `json:"packages"`
	Servers        []string      `json:"servers"`
	Skills         []string      `json:"skills"`
	Network        []string      `json:"network"`
	Secrets        []string      `json:"secrets,omitempty"` // the variables that have placeholders
	DiskBytes      int64         `json:"disk_bytes"`
	MemoryBytes    int64         `json:"memory_bytes"`
	// What programs left running in the background, where they can, and the end of
	// what that printed.
	Processes  []process `json:"processes,omitempty"`
	Background string    `json:"background_output,omitempty"`
	Image      string    `json:"image,omitempty"`
	Notice     string    `json:"notice,omitempty"`
}

type process struct {
	PID         int    `json:"pid"`
	Command     string `json:"command"`
	StartedAt   string `json:"started_at"`
	CPUMS       int64  `json:"cpu_ms"`
	MemoryBytes int64  `json:"memory_bytes"`
}

type variable struct {
	Name    string `json:"name"`
	Type    string `json:"type"`
	Preview string `json:"preview"`
}

func workspaceInfo(ctx context.Context, c *call, in sessionInput) (out sessionInfo, a answer, err error) {
	var d session.Details
	err = c.inSession(ctx, in.session, session.Settings{}, func(id session.ID) (err error) {
		d, err = c.server.config.Sessions.Details(ctx, c.bound.Owner, id)
		return err
	})
	if err != nil {
		return sessionInfo{}, answer{}, err
	}
	installed, err := c.packagesIn(ctx, d.ID)
	if err != nil {
		return sessionInfo{}, answer{}, err
	}
	d.Files = slices.DeleteFunc(d.Files, func(f session.File) bool { return install.Folder(f.Path) })
	skills, err := c.server.skillNames(c.bound.Owner)
	if err != nil {
		return sessionInfo{}, answer{}, err
	}
	out = sessionInfo{
		SessionID: d.ID, Name: d.Settings.Name, Language: d.Settings.Language, Isolation: d.Isolation, State: d.State,
		CreatedAt: timestamp(d.CreatedAt), LastUsedAt: timestamp(d.LastUsedAt), ExpiresAt: timestamp(d.ExpiresAt),
		ExecutionCount: d.Executions, Variables: []variable{}, Imports: listOf(d.Imports), Files: []file{},
		More:     len(d.Variables) > maxVariables || len(d.Files) > maxListed,
		Packages: listOf(installed), Servers: []string{}, Skills: skills, Network: listOf(c.server.reaches(d.Settings.Network)),
		DiskBytes: d.DiskBytes, MemoryBytes: d.Memory, Notice: strings.TrimSpace(c.notice + " " + d.Notice),
	}
	if s := c.server.config.Servers; s != nil {
		out.Servers = listOf(s.Names(c.brokered(d.ID)))
	}
	if d.Settings.Secrets != nil {
		out.Secrets = *d.Settings.Secrets
	}
	for _, v := range d.Variables[:min(len(d.Variables), maxVariables)] {
		out.Variables = append(out.Variables, variableOf(v))
	}
	for _, f := range d.Files[:min(len(d.Files), maxListed)] {
		out.Files = append(out.Files, file{Path: f.Path, Size: f.Size, Modified: timestamp(f.Modified)})
	}
	for _, p := range d.Processes[:min(len(d.Processes), maxProcesses)] {
		out.Processes = append(out.Processes, process{
			PID: p.PID, Command: textsafe.Cut(p.Command, 200), StartedAt: timestamp(p.Started), CPUMS: p.CPU.Milliseconds(), MemoryBytes: p.Memory,
		})
	}
	if out.Background = d.Printed; d.Settings.Machine != nil {
		out.Image = d.Settings.Machine.Image
	}
	return out, answer{}, nil
}

func variableOf(v sandbox.Variable) variable {
	return variable{Name: textsafe.Cut(v.Name, 100), Type: textsafe.Cut(v.Type, 100), Preview: textsafe.Cut(v.Preview, 200)}
}

type reset struct {
	SessionID    session.ID `json:"session_id"`
	FilesDeleted int        `json:"files_deleted"`
	Notice       string     `json:"notice,omitempty"`
}

func resetWorkspace(ctx context.Context, c *call, in sessionInput) (out reset, a answer, err error) {
	err = c.inSession(ctx, in.session, session.Settings{}, func(id session.ID) (err error) {
		out.SessionID = id
		out.FilesDeleted, err = c.server.config.Sessions.Reset(ctx, c.bound.Owner, id)
		return err
	})
	out.Notice = c.notice
	return out, answer{}, err
}

// timestamp is a moment as results show it.
func timestamp(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format(time.RFC3339)
}

// listOf is a list that is never null.
func listOf(list []string) []string {
	if list == nil {
		return []string{}
	}
	return list
}
