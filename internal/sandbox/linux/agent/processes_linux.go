package agent

import (
	"bytes"
	"errors"
	"math"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"paddock/internal/fault"
	"paddock/internal/sandbox"
	"paddock/internal/sandbox/wire"
)

// ticks is how many of a process's times make a second: USER_HZ, the same on
// every Linux that Go runs on.
const ticks = 100

// process is one of the box, as /proc tells it.
type process struct {
	pid, parent, group, session int
	zombie                      bool
	started                     int64 // ticks since the machine started
	cpu                         time.Duration
	waited                      time.Duration // CPU time of its children that it has waited for
	memory                      int64         // resident bytes
	space                       int64         // bytes of addresses
}

// life is what no two processes share, one after the other included.
type life struct {
	pid     int
	started int64
}

func (p process) life() life { return life{p.pid, p.started} }

// readProc reads what /proc tells about a process.
func readProc(pid int) (process, error) {
	stat, err := readStat("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return process{}, err
	}
	// The second field, in parentheses, may hold anything.
	end := bytes.LastIndexByte(stat, ')')
	fields := strings.Fields(string(stat[end+1:]))
	if end < 0 || len(fields) < 22 {
		return process{}, errors.New("the process's state is not readable")
	}
	number := func(field int) int64 { // as proc(5) counts them
		n, _ := strconv.ParseInt(fields[field-3], 10, 64)
		return n
	}
	return process{
		pid: pid, parent: int(number(4)), group: int(number(5)), session: int(number(6)), zombie: fields[0] == "Z" || fields[0] == "X",
		started: number(22), cpu: time.Duration(number(14)+number(15)) * time.Second / ticks,
		waited: time.Duration(number(16)+number(17)) * time.Second / ticks, memory: number(24) * int64(os.Getpagesize()), space: number(23),
	}, nil
}

// readStat reads a file of /proc that is a line or two. Package os makes eleven
// system calls of it, and each run reads two.
func readStat(path string) ([]byte, error) {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	defer unix.Close(fd)
	text := make([]byte, 1<<10)
	n, err := unix.Read(fd, text)
	if err != nil {
		return nil, err
	}
	return text[:n], nil
}

// descendants are all living processes below the agent, parents before their
// children. In a box that is all there are.
func descendants() []process {
	names, err := os.ReadDir("/proc")
	if err != nil {
		return nil
	}
	children := map[int][]process{}
	for _, n := range names {
		if pid, err := strconv.Atoi(n.Name()); err == nil {
			if p, err := readProc(pid); err == nil {
				children[p.parent] = append(children[p.parent], p)
			}
		}
	}
	var all []process
	next := []int{os.Getpid()}
	for len(next) > 0 {
		for _, p := range children[next[0]] {
			all = append(all, p)
			next = append(next, p.pid)
		}
		next = next[1:]
	}
	return slices.DeleteFunc(all, func(p process) bool { return p.zombie })
}

// owned sorts the processes by whose they are: an instance's kernel, what
// descends from it or is of its session, and whatever was so when it was seen
// before. 0 is for those of nobody.
func (a *agent) owned() map[uint32][]process {
	all := descendants()
	a.mu.Lock()
	defer a.mu.Unlock()
	sessions, kernels := map[int]uint32{}, map[int]uint32{}
	for _, in := range a.loop.Instances() {
		for _, s := range in.sessions() {
			sessions[s] = in.id
		}
		kernels[in.pid()] = in.id
	}
	now, mine, byPID := map[life]uint32{}, map[uint32][]process{}, map[int]uint32{}
	for _, p := range all {
		id := kernels[p.pid]
		for _, guess := range []uint32{byPID[p.parent], sessions[p.session], a.known[p.life()]} {
			if id == 0 {
				id = guess
			}
		}
		byPID[p.pid] = id
		if id != 0 {
			now[p.life()] = id
		}
		mine[id] = append(mine[id], p)
	}
	a.known = now
	return mine
}

// manage answers a question about the processes of an instance.
func (a *agent) manage(body wire.ManageBody) wire.ManagedBody {
	answer := wire.ManagedBody{Number: body.Number}
	if body.Op == wire.ManageRuntimes {
		answer.Runtimes = a.runtimes()
		return answer
	}
	in, ok := a.loop.Instance(body.Instance)
	if !ok {
		answer.StatusBody = wire.ErrorBody(fault.New(fault.NotFound, "there is no such interpreter"))
		return answer
	}
	switch body.Op {
	case wire.ManageList:
		answer.Processes = a.list(in)
	case wire.ManageSignal:
		if f := a.signalOne(in, body.PID, body.Signal); f != nil {
			answer.StatusBody = wire.ErrorBody(f)
		}
	case wire.ManageRead:
		answer.Printed = in.out.printed(body.From)
	case wire.ManageOpenTerminal:
		one, err := a.openTerminal(in, body.Open)
		answer.Terminals = []sandbox.Terminal{one}
		if err != nil {
			answer.StatusBody = wire.ErrorBody(fault.Of(err))
		}
	case wire.ManageTerminals:
		for _, one := range a.terminals.list() {
			answer.Terminals = append(answer.Terminals, one.describe())
		}
	case wire.ManageResize:
		one, f := a.terminals.get(body.Terminal)
		if f == nil {
			f = fault.Of(one.resize(body.Size))
		}
		if f != nil {
			answer.StatusBody = wire.ErrorBody(f)
		}
	default:
		answer.StatusBody = wire.ErrorBody(fault.New(fault.Unsupported, "the agent does not know how to %q", body.Op))
	}
	return answer
}

// listed are the processes that the instance may see: its own without the
// kernel, and those of nobody.
func (a *agent) listed(in *instance) (list []process, loose map[int]bool) {
	mine := a.owned()
	loose = map[int]bool{}
	for _, p := range mine[in.id] {
		if p.pid != in.pid() {
			list = append(list, p)
		}
	}
	for _, p := range mine[0] {
		list = append(list, p)
		loose[p.pid] = true
	}
	slices.SortFunc(list, func(x, y process) int { return int(x.started - y.started) })
	return list, loose
}

// maxListed is how many processes one answer names.
const maxListed = 500

func (a *agent) list(in *instance) []sandbox.Process {
	list, loose := a.listed(in)
	var found []sandbox.Process
	booted := time.Now().Add(-sinceBoot())
	for _, p := range list[:min(len(list), maxListed)] {
		found = append(found, sandbox.Process{
			PID: p.pid, Command: commandOf(p.pid), Started: booted.Add(time.Duration(p.started) * time.Second / ticks).Round(time.Second / ticks),
			CPU: p.cpu + p.waited, Memory: p.memory, Detached: loose[p.pid],
		})
	}
	return found
}

// commandOf is a process's command line. A copy of an interpreter, as bash makes one
// for what it puts into the background, has the interpreter's, which says nothing.
func commandOf(pid int) string {
	line, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/cmdline")
	if err != nil {
		return ""
	}
	line = bytes.ReplaceAll(bytes.TrimRight(line[:min(len(line), 1<<10)], "\x00"), []byte{0}, []byte{' '})
	for _, l := range languages {
		if strings.HasPrefix(string(line), l.program[0]+" "+strings.Join(l.args, " ")) { // its settings may follow
			return l.program[0] + " (forked)"
		}
	}
	return strings.ToValidUTF8(string(line), "\ufffd")
}

func sinceBoot() time.Duration {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &t); err != nil {
		return 0
	}
	return time.Duration(t.Nano())
}

var signals = map[string]syscall.Signal{
	"TERM": syscall.SIGTERM, "KILL": syscall.SIGKILL, "INT": syscall.SIGINT, "HUP": syscall.SIGHUP,
	"USR1": syscall.SIGUSR1, "USR2": syscall.SIGUSR2, "STOP": syscall.SIGSTOP, "CONT": syscall.SIGCONT,
}

func (a *agent) signalOne(in *instance, pid int, name string) *fault.Error {
	s, ok := signals[strings.TrimPrefix(name, "SIG")]
	if !ok {
		return fault.New(fault.Invalid, "there is no signal %q", name).WithHint("TERM and KILL end a process")
	}
	list, _ := a.listed(in)
	at := slices.IndexFunc(list, func(p process) bool { return p.pid == pid })
	if at < 0 {
		return fault.New(fault.NotFound, "there is no process %d", pid).WithHint("it may have ended; list the processes again")
	}
	if list[at].group == pid {
		pid = -pid
	}
	if err := syscall.Kill(pid, s); err != nil {
		return fault.New(fault.NotFound, "process %d cannot be signalled: %v", list[at].pid, err)
	}
	return nil
}

// killTimes is how often what keeps starting new processes is looked for.
const killTimes = 50

// killOf ends what an instance's programs started: since a moment in ticks, but for what
// somebody started at a terminal, or all of it. The kernel is the caller's own.
func (a *agent) killOf(in *instance, since int64) {
	a.kill(func() []process {
		return slices.DeleteFunc(a.owned()[in.id], func(p process) bool {
			return p.pid == in.pid() || p.started < since || since != math.MinInt64 && a.terminals.has(p.session)
		})
	})
}

// killAll ends every process below the agent.
func (a *agent) killAll() { a.kill(descendants) }

// kill ends what find finds. All of it is stopped first, so that nothing goes on
// starting more: what has been stopped keeps its place among the user's
// processes. When it returns, none is left, but for what cannot be killed.
func (a *agent) kill(find func() []process) {
	stopped := map[life]bool{}
	for range killTimes {
		more := false
		for _, p := range find() {
			if !stopped[p.life()] {
				more, stopped[p.life()] = true, true
				_ = syscall.Kill(p.pid, syscall.SIGSTOP)
			}
		}
		if !more {
			break
		}
	}
	for wait := time.Millisecond; wait < time.Second; wait *= 2 {
		left := find()
		for _, p := range left {
			_ = syscall.Kill(p.pid, syscall.SIGKILL)
		}
		if len(left) == 0 {
			return
		}
		time.Sleep(wait)
	}
}
