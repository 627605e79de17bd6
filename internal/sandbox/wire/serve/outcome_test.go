package serve

import (
	"strings"
	"testing"

	"paddock/internal/sandbox"
	"paddock/internal/sandbox/wire"
	"paddock/internal/sandbox/wire/wiretest"
)

func TestAnOutcomeTellsTheProgramsError(t *testing.T) {
	for name, c := range map[string]struct {
		said *Failure
		want sandbox.Cause
	}{
		"there is none":             {nil, sandbox.Exited},
		"one of the program's":      {&Failure{Type: "ValueError"}, sandbox.Exited},
		"there was no memory":       {&Failure{Type: "MemoryError", Kind: "memory"}, sandbox.OutOfMemory},
		"there was no room on disk": {&Failure{Type: "OSError", Kind: "space"}, sandbox.OutOfSpace},
		"it was interrupted":        {&Failure{Type: "KeyboardInterrupt", Kind: "interrupted"}, sandbox.Exited},
	} {
		t.Run(name, func(t *testing.T) {
			exit := sandbox.Exit{Cause: sandbox.Exited}
			Outcome{Error: c.said}.Report(&exit)
			if exit.Cause != c.want {
				t.Errorf("the cause is %v, want %v", exit.Cause, c.want)
			}
			if got, want := exit.Error != nil, c.said != nil; got != want {
				t.Fatalf("the exit has an error: %v, want %v", got, want)
			}
			if c.said != nil && exit.Error.Type != c.said.Type {
				t.Errorf("the error's type is %q, want %q", exit.Error.Type, c.said.Type)
			}
		})
	}
	var exit sandbox.Exit
	Outcome{Error: &Failure{Type: "t", Message: "m", Line: 3, Hint: "h", Traceback: "tb", Kind: "memory"}}.Report(&exit)
	want := sandbox.ProgramError{Type: "t", Message: "m", Line: 3, Hint: "h", Traceback: "tb"}
	if got := *exit.Error; got != want {
		t.Errorf("the error is %+v, want %+v", got, want)
	}
}

func TestAnOutcomesInspectionIsCut(t *testing.T) {
	o := Outcome{Variables: []sandbox.Variable{{Name: "x", Preview: strings.Repeat("a", 1000)}}, Imports: []string{"math"}}
	got := o.Inspection()
	if len(got.Variables) != 1 || len(got.Variables[0].Preview) >= 1000 {
		t.Errorf("the variables are %.200v, want one with the beginning of its preview", got.Variables)
	}
	if len(got.Imports) != 1 || got.Imports[0] != "math" {
		t.Errorf("the imports are %v, want math", got.Imports)
	}
}

func TestWhyAStoppedRunEnded(t *testing.T) {
	for name, c := range map[string]struct {
		exit     sandbox.Exit
		cause    sandbox.Cause
		ended    bool
		want     sandbox.Cause
		wantCode int
	}{
		"it was not stopped":                         {sandbox.Exit{Cause: sandbox.Exited}, 0, false, sandbox.Exited, 0},
		"it was not, and failed":                     {sandbox.Exit{Cause: sandbox.Exited, Code: 3}, 0, true, sandbox.Exited, 3},
		"it ended before it heard of it":             {sandbox.Exit{Cause: sandbox.Exited}, sandbox.TimedOut, false, sandbox.Exited, 0},
		"it was interrupted, and caught that":        {sandbox.Exit{Cause: sandbox.Exited}, sandbox.TimedOut, true, sandbox.TimedOut, 1},
		"it was interrupted, with a code of its own": {sandbox.Exit{Cause: sandbox.Exited, Code: 130}, sandbox.Cancelled, true, sandbox.Cancelled, 130},
		"it crashed as it was stopped":               {sandbox.Exit{Cause: sandbox.Crashed, Code: 1}, sandbox.OutputExceeded, false, sandbox.OutputExceeded, 1},
		"it ran out of memory by itself":             {sandbox.Exit{Cause: sandbox.OutOfMemory}, 0, false, sandbox.OutOfMemory, 1},
		"it waits":                                   {sandbox.Exit{Cause: sandbox.Waiting}, 0, false, sandbox.Waiting, 0},
	} {
		t.Run(name, func(t *testing.T) {
			exit := c.exit
			Conclude(&exit, c.cause, c.ended)
			if exit.Cause != c.want {
				t.Errorf("the cause is %v, want %v", exit.Cause, c.want)
			}
			if exit.Code != c.wantCode {
				t.Errorf("the code is %d, want %d", exit.Code, c.wantCode)
			}
		})
	}
}

func TestTheProgramOfARun(t *testing.T) {
	stopped := func(e *Ends) { e.Control.Interrupt(sandbox.TimedOut) }
	for name, c := range map[string]struct {
		language, runtime string
		before            func(*Ends)

		code, failed, printed string
		cause                 sandbox.Cause
	}{
		"in the runtime's language":    {language: "python", runtime: "python", code: "x"},
		"in none":                      {runtime: "bash", code: "x"},
		"in another":                   {language: "cobol", runtime: "python", failed: "Unsupported", printed: "this runtime does not run cobol\n", cause: sandbox.Exited},
		"in TypeScript, for Python":    {language: "typescript", runtime: "python", failed: "Unsupported", printed: "this runtime does not run typescript\n", cause: sandbox.Exited},
		"in TypeScript, and too long":  {language: "typescript", runtime: "javascript", failed: "SyntaxError", printed: "SyntaxError: the program is too long", cause: sandbox.Exited},
		"in TypeScript, and unwelcome": {language: "typescript", runtime: "javascript", before: stopped, failed: Stopped, cause: sandbox.TimedOut},
	} {
		t.Run(name, func(t *testing.T) {
			sent := &wiretest.Recorder{}
			conn := wire.NewConn(sent)
			l, e := NewLoop[*echoed](conn, nil), NewEnds(conn, 7)
			body := wire.RunBody{Code: "x", Language: c.language}
			if c.failed == "SyntaxError" {
				body.Code = strings.Repeat("x", sandbox.MaxSource+1)
			}
			e.Control.Begin(0)
			if c.before != nil {
				c.before(e)
			}
			code, _, failed := l.Program(e, body, c.runtime)
			if code != c.code {
				t.Errorf("the code is %.20q, want %q", code, c.code)
			}
			if c.failed == "" {
				if failed != nil {
					t.Errorf("the run ended: %+v", failed)
				}
				return
			}
			if failed == nil {
				t.Fatal("the run goes on")
			}
			if failed.Error.Type != c.failed {
				t.Errorf("the error is %+v, want a %s", failed.Error, c.failed)
			}
			if failed.Cause != c.cause || failed.Code != 1 || failed.State != sandbox.Kept {
				t.Errorf("it %v with code %d, state %v, want %v with 1, %v", failed.Cause, failed.Code, failed.State, c.cause, sandbox.Kept)
			}
			printed := ""
			for _, f := range sent.Frames(t) {
				if f.Kind == wire.KindStderr {
					printed += string(f.Body)
				}
			}
			if !strings.HasPrefix(printed, c.printed) || c.printed == "" && printed != "" {
				t.Errorf("it printed %q, want %q", printed, c.printed)
			}
			e.Control.Interrupt(sandbox.Cancelled)
			if got := e.Control.Level(); got != Going {
				t.Errorf("after its end the run's level is %v, want %v", got, Going)
			}
		})
	}
}
