package worker

import (
	"fmt"

	"paddock/internal/sandbox"
	"paddock/internal/sandbox/wire"
)

// translate gives the code that the runtime can run, and the source map that
// leads back from it; empty: it is the code as it came. failed is how the run
// ends when there is none.
func (in *instance) translate(body wire.RunBody) (code, sourceMap string, failed *sandbox.Exit) {
	switch body.Language {
	case "", in.program.guest.Name:
		return body.Code, "", nil
	case "typescript":
		if in.program.guest.Name != "javascript" {
			break
		}
		soft, _ := in.ends.Control.Stops()
		t, ok := in.worker.loop.Translate(sandbox.Source{Code: body.Code, Name: body.Name}, soft)
		switch {
		case !ok:
			exit := neverBegun(in.ends.Control.End())
			return "", "", &exit
		case t.Error != nil:
			return "", "", &sandbox.Exit{Cause: sandbox.Exited, Code: 1, State: sandbox.Kept, Error: t.Error}
		}
		return t.Code, t.Map, nil
	}
	return "", "", &sandbox.Exit{Cause: sandbox.Exited, Code: 1, State: sandbox.Kept, Error: &sandbox.ProgramError{
		Type: "Unsupported", Message: fmt.Sprintf("the %s runtime does not run %s", in.program.guest.Name, body.Language),
		Traceback: "this runtime does not run " + body.Language + "\n",
	}}
}
