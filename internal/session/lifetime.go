package session

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"paddock/internal/fault"
	"paddock/internal/history"
	"paddock/internal/sandbox"
)

// backgroundCheckTime bounds how long a machine may take to tell what runs in it.
const backgroundCheckTime = 2 * time.Second

// onMachineBooted does what there is to do when a machine has been booted.
func (m *Manager) onMachineBooted() {
	m.openIPC()
	select {
	case m.wake <- struct{}{}: // the janitor has to know when it has to end
	default:
	}
}

// onMachineGone does what is left to do when no interpreter of a machine lives any
// more, and the machine with it has ended.
func (s *session) onMachineGone() {
	if len(s.live()) > 0 {
		return
	}
	s.dropPrestarted()
	s.mu.Lock()
	s.booted = time.Time{}
	s.mu.Unlock()
	s.unpublish()
}

// endMachine ends the machine with all that lives in it. The next result of each
// interpreter says that its variables are gone, because of why; what is given says
// that they are, and which processes were stopped; those of the runtimes in back come
// back. It is the caller's turn.
func (s *session) endMachine(why string, back map[string]history.Interpreter) string {
	variables := slices.DeleteFunc(s.unsavableRuntimes(), func(runtime string) bool { _, comes := back[runtime]; return comes })
	processes := s.namedProcesses()
	s.dropAll()
	for _, runtime := range variables {
		s.lostReasons[runtime] = why
	}
	notice := ""
	if len(variables) > 0 {
		notice = "Variables are gone (" + enumerate(variables) + "): " + filesOnly + "."
	}
	if processes != "" {
		notice = joinNotices(notice, "Processes in the background were stopped: "+processes+".")
	}
	return notice
}

// expiredLocked tells whether the machine has run for as long as it may.
func (s *session) expiredLocked(now time.Time) bool {
	most := s.manager.config.MaxLifetime
	return most > 0 && !s.booted.IsZero() && now.Sub(s.booted) >= most
}

// enforceMaxLifetime ends a machine that has run for as long as it may: the next interpreter
// starts in a new one, and the next result says so. It is the caller's turn.
func (s *session) enforceMaxLifetime(ctx context.Context, now time.Time) {
	s.mu.Lock()
	over := s.expiredLocked(now)
	s.mu.Unlock()
	if !over {
		return
	}
	most := s.manager.config.MaxLifetime
	s.manager.log.InfoContext(ctx, "a machine has run for as long as it may", "session", s.id)
	s.endMachineQuietly(fmt.Sprintf("The session's machine was stopped when it had run for %v, the most that is allowed", most),
		fmt.Sprintf("its machine had run for %v, the most that is allowed", most))
	if err := s.dropMachineState(ctx); err != nil {
		s.manager.log.WarnContext(ctx, "a machine's state cannot be given up", "session", s.id, "cause", fault.CauseOf(err))
	}
	s.noteUnsaved()
	if err := s.save(); err != nil {
		s.manager.log.WarnContext(ctx, "a session's record cannot be written", "session", s.id, "cause", err)
	}
}

// endMachineQuietly is endMachine where nobody is there to be told: the next
// result tells.
func (s *session) endMachineQuietly(what, why string) {
	s.noteStoppedProcesses(what)
	s.endMachine(why, nil)
}

// enforceMaxLifetimes ends the machines that have run for as long as they may, and gives the
// time until it should look again. One in which a program runs is ended when that
// has ended.
func (m *Manager) enforceMaxLifetimes(now time.Time) time.Duration {
	next := maxRest
	if m.config.MaxLifetime <= 0 {
		return next
	}
	for _, s := range m.open("") {
		s.mu.Lock()
		over, booted := s.expiredLocked(now), s.booted
		s.mu.Unlock()
		if booted.IsZero() {
			continue
		}
		if !over {
			next = min(next, booted.Add(m.config.MaxLifetime).Sub(now))
			continue
		}
		if t := s.tryTurn(m.ctx); t != nil {
			s.enforceMaxLifetime(t.ctx, now)
			s.leave(t)
		}
	}
	return next
}

// hasBackgroundWork tells whether programs of a session that is due work on in the
// background: then it does not fall asleep by itself. due is asked under the lock.
func (s *session) hasBackgroundWork(ctx context.Context, due func() bool) bool {
	if !hasMachines(s.backend) {
		return false
	}
	s.mu.Lock()
	ask := due()
	s.mu.Unlock()
	return ask && len(s.backgroundProcesses(ctx)) > 0
}

// noteStoppedProcesses has the next result name the processes that are about to be
// stopped; what is said before that.
func (s *session) noteStoppedProcesses(what string) {
	if names := s.namedProcesses(); names != "" {
		s.addNotice(what + ": processes in the background were stopped (" + names + ").")
	}
}

// mostNamed is how many processes a notice names.
const mostNamed = 5

// namedProcesses names what works in the background; "" where nothing does.
func (s *session) namedProcesses() string {
	all := s.backgroundProcesses(context.Background())
	var names []string
	for _, p := range all[:min(len(all), mostNamed)] {
		name := p.Command
		if len(name) > 60 {
			name = strings.ToValidUTF8(name[:60], "") + "…"
		}
		names = append(names, name)
	}
	if more := len(all) - len(names); more > 0 {
		names = append(names, fmt.Sprintf("and %d more", more))
	}
	if len(names) == 0 {
		return ""
	}
	return enumerate(names)
}

// processManagers are the live interpreters that can tell of processes, by runtime.
func (s *session) processManagers() map[string]sandbox.ProcessManager {
	all := map[string]sandbox.ProcessManager{}
	for runtime, in := range s.live() {
		if o, ok := in.(sandbox.ProcessManager); ok {
			select {
			case <-in.Done():
			default:
				all[runtime] = o
			}
		}
	}
	return all
}

// backgroundProcesses lists what works in the background of a machine, as far as it answers in
// time. It waits for no program.
func (s *session) backgroundProcesses(ctx context.Context) []Process {
	if s.backend == nil || !hasMachines(s.backend) {
		return nil
	}
	all, err := s.processes(ctx)
	if err != nil && fault.KindOf(err) != fault.Unavailable {
		s.manager.log.Debug("a machine does not tell what runs in it", "session", s.id, "cause", fault.CauseOf(err))
	}
	return all
}
