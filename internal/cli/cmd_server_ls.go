package cli

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"paddock/internal/app"
	"paddock/internal/bindings/upstream"
	"paddock/internal/config"
	"paddock/internal/fault"
)

// serverJSON is a server as results show it.
type serverJSON struct {
	Name      string              `json:"name"`
	Origin    string              `json:"origin"`
	Transport string              `json:"transport"`
	Command   string              `json:"command,omitempty"`
	Args      []string            `json:"args,omitempty"`
	Dir       string              `json:"cwd,omitempty"`
	URL       string              `json:"url,omitempty"`
	Env       []string            `json:"env,omitempty"`     // names alone
	Headers   []string            `json:"headers,omitempty"` // names alone
	Policy    map[string][]string `json:"tools,omitempty"`
	State     string              `json:"state,omitempty"` // usable, unusable; with a look: ok, login, refused, unreachable
	Detail    string              `json:"detail,omitempty"`
	Hint      string              `json:"hint,omitempty"`
	Tools     *int                `json:"tool_count,omitempty"`
	Protocol  string              `json:"protocol,omitempty"`
}

// The states of a server.
const (
	usable      = "usable" // not connected to
	unusable    = "unusable"
	answers     = "ok"
	wantsLogin  = "login"
	refuses     = "refused" // the token that it is sent
	unreachable = "unreachable"
)

func shown(k *app.Server) serverJSON {
	s := k.Written
	j := serverJSON{
		Name: k.Name, Origin: k.Origin, Transport: app.TransportOf(s), Command: s.Command, Args: s.Args, Dir: s.Dir, URL: config.ShownURL(s.URL),
		Env: slices.Sorted(maps.Keys(s.Env)), Headers: slices.Sorted(maps.Keys(s.Headers)), State: usable,
	}
	for name, patterns := range map[string][]string{"allow": s.Tools.Allow, "ask": s.Tools.Ask, "deny": s.Tools.Deny} {
		if len(patterns) > 0 {
			if j.Policy == nil {
				j.Policy = map[string][]string{}
			}
			j.Policy[name] = patterns
		}
	}
	if k.Err != nil {
		j.failed(unusable, k.Err)
	}
	return j
}

// failed puts in why a server does not work.
func (j *serverJSON) failed(state string, err error) {
	var messages []string
	for _, e := range fault.Apart(err) {
		f := fault.Of(e)
		messages = append(messages, f.Message)
		if j.Hint == "" {
			j.Hint = f.Hint
		}
	}
	j.State, j.Detail = state, strings.Join(messages, "; ")
}

func (cmd serverCommand) listCommand() *cobra.Command {
	var asJSON, check bool
	c := &cobra.Command{
		Use: "ls", Aliases: []string{"list"}, Short: "List the servers, and where each comes from",
		Long: `Lists the servers of paddock.toml and those that were added. With --check each is
connected to, which starts those that are commands.

Exit codes: 0 done; with --check 1 if one does not answer; 1 failed, 2 wrong usage.`,
		Args: count(0, 0, ""),
		RunE: func(c *cobra.Command, _ []string) error { return cmd.listServers(c, check, asJSON) },
	}
	c.Flags().BoolVar(&check, "check", false, "connect to each server, and say how it is")
	jsonFlag(c, &asJSON)
	return c
}

func (cmd serverCommand) listServers(c *cobra.Command, check, asJSON bool) error {
	if err := cmd.load(c); err != nil {
		return err
	}
	all, err := cmd.Servers()
	defer func() {
		for _, k := range all {
			k.Close()
		}
	}()
	if err != nil {
		return err
	}
	list := make([]serverJSON, len(all))
	var work sync.WaitGroup
	for i, k := range all {
		list[i] = shown(k)
		if check && k.Err == nil {
			work.Go(func() { cmd.look(c.Context(), k, &list[i]) })
		}
	}
	work.Wait()
	if asJSON {
		err = cmd.printJSON(map[string]any{"servers": list})
	} else {
		err = cmd.printServers(list)
	}
	wrong := slices.ContainsFunc(list, func(j serverJSON) bool { return j.State != answers })
	if err == nil && check && wrong {
		err = exit(exitFailed)
	}
	return err
}

func (cmd serverCommand) printServers(list []serverJSON) error {
	rows := [][]string{{"NAME", "TRANSPORT", "FROM", "STATE", "WHAT"}}
	for _, j := range list {
		what, state := j.URL, j.State
		if what == "" {
			what = strings.Join(append([]string{j.Command}, j.Args...), " ")
		}
		if j.Tools != nil {
			state = fmt.Sprintf("%s (%d tools)", state, *j.Tools)
		}
		rows = append(rows, []string{j.Name, j.Transport, j.Origin, state, plain(what)})
		if j.Detail != "" {
			rows = append(rows, []string{"", "", "", "", "→ " + plain(j.Detail)})
		}
		if j.Hint != "" {
			rows = append(rows, []string{"", "", "", "", "→ " + plain(j.Hint)})
		}
	}
	return cmd.printTable(rows)
}

// lookTime bounds a look at a server: a program may have to be fetched first.
const lookTime = 60 * time.Second

// look connects to a server and says how it is.
func (cmd serverCommand) look(ctx context.Context, k *app.Server, j *serverJSON) {
	ctx, cancel := context.WithTimeout(ctx, lookTime)
	defer cancel()
	conn, err := cmd.Dial(ctx, k)
	if err == nil {
		defer conn.Close()
		tools, listed := conn.Tools(ctx)
		if err = listed; err == nil {
			n := len(tools)
			j.State, j.Tools, j.Protocol = answers, &n, conn.Info().Protocol
			return
		}
	}
	if upstream.ReasonOf(err) == upstream.Unauthorized {
		j.failed(wantsLogin, err)
		if j.Hint = "paddock server login " + k.Name; k.Login == nil {
			j.State, j.Hint = refuses, "it does not take what its Authorization header has"
		}
		return
	}
	j.failed(unreachable, err)
	if j.Hint == "" {
		j.Hint = itSaid(err)
	}
}

// itSaid is what a server's program wrote last before err, on one line; empty: nothing, or
// it is none.
func itSaid(err error) string {
	var up *upstream.Error
	if !errors.As(err, &up) || up.Stderr == "" {
		return ""
	}
	return "it said: " + strings.ReplaceAll(up.Stderr, "\n", "; ")
}
