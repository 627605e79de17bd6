package sandboxtest

import (
	"cmp"
	"context"
	"encoding/json"
	"slices"
	"strconv"

	"paddock/internal/sandbox"
)

// fakeBody is what a call of a tool says.
func fakeBody(tool, text string) []byte {
	body, err := json.Marshal(map[string]any{"op": "call", "server": "s", "tool": tool, "arguments": map[string]string{"text": text}})
	if err != nil {
		panic(err) // there is only text in it
	}
	return body
}

// fakeAnswer is what the host answers.
type fakeAnswer struct {
	Value string
	Error struct{ Kind, Message string }
}

func readAnswer(text []byte) (a fakeAnswer, err error) {
	if len(text) == 0 || len(text) > sandbox.MaxAnswer {
		a.Error.Kind = "unavailable"
		return a, nil
	}
	return a, json.Unmarshal(text, &a)
}

// callHost calls a tool, and gives its value, or the error's kind and message.
func (r *fakeRun) callHost(tool, text string) (string, error) {
	var said []byte
	if r.cmd.Call != nil {
		r.calls++
		call := sandbox.Call{Number: r.calls, Body: fakeBody(tool, text)}
		came := make(chan []byte, 1)
		ctx, cancel := context.WithCancel(r.ctx)
		go func() { came <- r.cmd.Call(ctx, call) }()
		select {
		case said = <-came:
		case <-r.in.kill:
			cancel()
			<-came
		}
		cancel()
	}
	answer, err := readAnswer(said)
	if err := r.stop(); err != nil {
		return "", err
	}
	if answer.Error.Kind != "" {
		return answer.Error.Kind + " " + answer.Error.Message, err
	}
	return answer.Value, err
}

// fakeWaiting is a program that waits in a gather, and the lines that follow.
type fakeWaiting struct {
	Gather *fakeGather
	Line   int
	Rest   []string
}

// fakeGather is calls at once, of which some have been made and some answered.
type fakeGather struct {
	Name, Tool        string
	Calls, Made, Done int
	Sum               int64
	Failed            string // what the first error says
}

// gathered is a reply to one of its calls.
type gathered struct {
	sandbox.OpenCall
	said []byte
}

// gatherer is a gather under way.
type gatherer struct {
	*fakeGather
	run    *fakeRun
	ctx    context.Context
	came   chan gathered
	going  map[uint32]sandbox.OpenCall
	nobody bool // to be asked
}

// gather makes the calls of a gather that have not been made, waits for all of them,
// and gives the sum to its variable; open are those that it waited for already.
func (r *fakeRun) gather(from *fakeGather, open []sandbox.OpenCall) error {
	now := *from
	ctx, cancel := context.WithCancelCause(r.ctx)
	g := &gatherer{fakeGather: &now, run: r, ctx: ctx, came: make(chan gathered, sandbox.CallsAtOnce), going: map[uint32]sandbox.OpenCall{}, nobody: r.cmd.Call == nil}
	err := g.pursue(open)
	cancel(err)
	for len(g.going) > 0 && err != nil {
		one := <-g.came
		if open := g.going[one.ID]; err == sandbox.ErrWaiting {
			if len(one.said) > 0 {
				open.Answer = one.said
			}
			r.open = append(r.open, open)
		}
		delete(g.going, one.ID)
	}
	slices.SortFunc(r.open, func(a, b sandbox.OpenCall) int { return cmp.Compare(a.Number, b.Number) })
	switch {
	case err != nil:
		if err == sandbox.ErrWaiting {
			r.in.waits = &fakeWaiting{g.fakeGather, r.line, r.rest}
		}
		return err
	case g.Failed != "":
		return &raised{kind: "ToolError", message: g.Failed}
	}
	r.in.vars[g.Name] = g.Sum
	return nil
}

// ask has the host answer a call.
func (g *gatherer) ask(one sandbox.OpenCall) {
	g.going[one.ID] = one
	if one.Answer != nil || g.nobody {
		g.came <- gathered{one, one.Answer}
		return
	}
	go func() { g.came <- gathered{one, g.run.cmd.Call(g.ctx, one.Call)} }()
}

// pursue ends with sandbox.ErrWaiting where the program is to be left.
func (g *gatherer) pursue(open []sandbox.OpenCall) error {
	for _, one := range open {
		g.ask(one)
	}
	suspend := g.run.cmd.Suspend
	for quiet := false; g.Done < g.Calls; {
		for g.Made < g.Calls && len(g.going) < sandbox.CallsAtOnce {
			g.run.calls++
			g.ask(sandbox.OpenCall{Call: sandbox.Call{Number: g.run.calls, Body: fakeBody(g.Tool, strconv.Itoa(g.Made))}, ID: uint32(g.run.calls)})
			g.Made++
		}
		if quiet && len(g.came) == 0 {
			return sandbox.ErrWaiting
		}
		select {
		case one := <-g.came:
			if err := g.take(one); err != nil {
				return err
			}
		case <-suspend:
			quiet, suspend = true, nil
		case <-g.ctx.Done():
			return g.run.stop()
		case <-g.run.in.kill:
			return errKilled
		}
	}
	return nil
}

// take takes an answer.
func (g *gatherer) take(one gathered) error {
	delete(g.going, one.ID)
	g.Done++
	answer, err := readAnswer(one.said)
	if err != nil {
		return err
	}
	n, err := strconv.ParseInt(answer.Value, 10, 64)
	switch {
	case answer.Error.Kind != "" && g.Failed == "":
		g.Failed = answer.Error.Kind + " " + answer.Error.Message
	case answer.Error.Kind == "" && err != nil && g.Failed == "":
		g.Failed = "it is not a number: " + answer.Value
	}
	g.Sum += n
	return nil
}
