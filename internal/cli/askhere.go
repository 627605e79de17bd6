package cli

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"

	"paddock/internal/approval"
	"paddock/internal/auth"
	"paddock/internal/fault"
)

// personHere is who started a program. At a terminal they are asked there about what it waits
// for; else they are told who can be.
type personHere struct {
	cl    *cli
	ctx   context.Context // of the run
	store *approval.Store
	one   sync.Mutex // held while somebody is asked: one question at a time
}

// askHere gives a context of a run that asks who started it; done ends the asking.
func (r runner) askHere(ctx context.Context) (asking context.Context, done func()) {
	ctx, stop := context.WithCancel(ctx)
	return approval.WithAsker(ctx, &personHere{cl: r.cli, ctx: ctx, store: r.app.Questions()}), stop
}

// terminalFile is the terminal of who started paddock, whatever stdin is.
const terminalFile = "/dev/tty"

// Ask implements [approval.Asker].
func (h *personHere) Ask(a approval.Approval) {
	call := plain(a.Server) + "." + plain(a.Tool)
	if !person(h.cl.stdin) || !terminal(h.cl.stderr) {
		h.tell(a, call)
		return
	}
	tty, err := os.OpenFile(terminalFile, os.O_RDWR, 0)
	if err != nil {
		h.tell(a, call)
		return
	}
	go h.question(tty, a, call)
}

func (h *personHere) tell(a approval.Approval, call string) {
	h.cl.say("waiting", fmt.Sprintf("the program calls %s, which somebody has to allow: paddock approvals show %s", call, a.ID))
	h.cl.say("hint", "paddock approvals grant or deny, in another terminal; --timeout gives it more time")
}

// question asks at the terminal until there is an answer, also one that was given elsewhere,
// or the run has ended. It closes tty.
func (h *personHere) question(tty *os.File, a approval.Approval, call string) {
	h.one.Lock()
	defer h.one.Unlock()
	ctx, over := context.WithCancel(h.ctx)
	var watching sync.WaitGroup
	defer watching.Wait()
	defer over()
	watching.Go(func() {
		_, _ = h.store.Wait(ctx, a.Owner, a.ID) // decided, or not to be any more
		over()
		tty.Close()
	})
	h.cl.say("waiting", fmt.Sprintf("the program calls %s, with the arguments\n%s", call, indented(argumentsOf(a))))
	answers := bufio.NewReader(tty)
	for ctx.Err() == nil {
		fmt.Fprint(tty, "paddock: allow this call, once? [y/n] ")
		line, err := answers.ReadString('\n')
		if err != nil {
			return
		}
		switch strings.ToLower(strings.TrimSpace(line)) {
		case "y", "yes":
			h.decide(a, true)
			return
		case "n", "no":
			h.decide(a, false)
			return
		}
	}
}

func (h *personHere) decide(a approval.Approval, grant bool) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(h.ctx), 10*time.Second)
	defer cancel()
	d := approval.Decision{By: auth.Local, Grant: grant}
	if !grant {
		d.Reason = "denied at the terminal"
	}
	if _, err := h.store.Decide(ctx, a.Owner, a.ID, d); err != nil && fault.KindOf(err) != fault.Conflict {
		h.cl.report(err)
	}
}
