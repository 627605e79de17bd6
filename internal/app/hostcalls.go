package app

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"paddock/internal/bindings/broker"
	"paddock/internal/fault"
	"paddock/internal/sandbox"
	"paddock/internal/session"
	"paddock/internal/skill"
)

// answer answers one request of a program.
type answer func(ctx context.Context, run session.Run, c sandbox.Call) []byte

// hostCalls answers what programs ask of the host: it implements [session.Tools].
type hostCalls struct {
	*tools
	families families
}

// families are who answers, by what is before the dot in an operation's name. "" answers the
// others.
type families map[string]answer

// newHostCalls joins who answers. declared, when it is set, limits the tools that programs
// may call.
func newHostCalls(t *tools, n *network, s *sessionSecrets, declared *skill.Manifest) *hostCalls {
	call := t.call
	if declared != nil {
		call = declaredOnly(*declared, call)
	}
	return &hostCalls{tools: t, families: newFamilies(n.answer, s.redacted, families{"": call})}
}

// newFamilies joins the families. redact is the outermost layer of all but the network's,
// whose answers the proxy has redacted. There is no other way into the table.
func newFamilies(network answer, redact func(answer) answer, others families) families {
	all := families{}
	for name, a := range others {
		all[name] = redact(a)
	}
	all["net"] = network
	return all
}

// Call implements [session.Tools].
func (h *hostCalls) Call(ctx context.Context, run session.Run, c sandbox.Call) []byte {
	return h.families.of(operation(c.Body))(ctx, run, c)
}

// of gives who answers an operation.
func (f families) of(operation string) answer {
	family, _, dotted := strings.Cut(operation, ".")
	if a := f[family]; dotted && a != nil {
		return a
	}
	return f[""]
}

// operation is the value of "op", the member that says what a request is for; "": it has
// none. The guests' drivers write it first, and nothing behind it is read.
func operation(body []byte) string {
	d := json.NewDecoder(bytes.NewReader(body))
	if t, err := d.Token(); err != nil || t != json.Delim('{') {
		return ""
	}
	for d.More() {
		name, err := d.Token()
		if err != nil {
			return ""
		}
		if name == "op" {
			var op string
			_ = d.Decode(&op) // another value is no operation
			return op
		}
		var other json.RawMessage
		if d.Decode(&other) != nil {
			return ""
		}
	}
	return ""
}

// redacted takes a session's secrets out of what tools answer, and out of what they have
// written into its files: a server may know them from elsewhere.
func (g *sessionSecrets) redacted(call answer) answer {
	return func(ctx context.Context, run session.Run, c sandbox.Call) []byte {
		info, err := g.sessions.Info(run.Owner, run.Session)
		if err == nil && info.Settings.Secrets == nil {
			return call(ctx, run, c)
		}
		engine := g.engine(run.Owner, run.Session)
		if put := run.Put; put != nil {
			run.Put = func(name string, data []byte) (string, error) {
				values, err := engine.Redactor()
				if err != nil {
					return "", err
				}
				return put(name, values.Bytes(data))
			}
		}
		text := call(broker.WithClean(ctx, func(text []byte) []byte {
			values, err := engine.Redactor()
			if err != nil {
				return nil // nor is the answer passed on
			}
			return values.Bytes(text)
		}), run, c)
		values, err := engine.Redactor()
		if err != nil {
			g.warn("what a tool answered is not passed on, as it might hold secrets", "session", run.Session, "cause", fault.CauseOf(err))
			return refusal("the session's secrets cannot be read, so what the tool answered is not passed on; the server's log says why")
		}
		return values.Bytes(text)
	}
}

// declaredOnly lets a program call no tools but those that a skill declares, of those that
// it might call without it.
func declaredOnly(m skill.Manifest, call answer) answer {
	return func(ctx context.Context, run session.Run, c sandbox.Call) []byte {
		var asked struct {
			Op     string `json:"op"`
			Server string `json:"server"`
			Tool   string `json:"tool"`
		}
		if err := json.Unmarshal(c.Body, &asked); err != nil || asked.Op != "call" {
			return refusal("a skill's script calls the tools that the skill declares, and asks for nothing else")
		}
		if !m.UsesTool(asked.Server, asked.Tool) {
			return refusal(fmt.Sprintf("the skill does not declare the tool %q (paddock.tools in its metadata)", asked.Server+"/"+asked.Tool))
		}
		return call(ctx, run, c)
	}
}

// refusal is an answer that becomes a ToolError (guest/README.md).
func refusal(message string) []byte {
	text, err := json.Marshal(map[string]any{"error": map[string]string{"kind": string(fault.Denied), "message": message}})
	if err != nil {
		return nil // of texts that can be encoded
	}
	return text
}
