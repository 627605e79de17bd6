package worker

import "paddock/internal/sandbox/wire/serve"

// input is a program's stdin as the guest reads it. It belongs to the goroutine
// that runs the guest.
type input struct {
	*serve.Ends
	rest []byte // of a piece that was read in part
}

// begin starts a run that has input or not.
func (i *input) begin(open bool) {
	i.rest = nil
	i.In.Begin(open)
}

// read fills p. 0 bytes is the end of the input; ok is false when the run was
// interrupted before anything came.
func (i *input) read(p []byte) (n int, ok bool) {
	if len(i.rest) == 0 {
		soft, _ := i.Control.Stops()
		if i.rest, ok = i.In.Next(soft); !ok {
			return 0, false
		}
	}
	n = copy(p, i.rest)
	i.rest = i.rest[n:]
	return n, true
}
