package wasm

import (
	"fmt"
	"io"
	"os"
	"os/exec"
)

// connect makes the pipes that cmd inherits as its standard input and output,
// and gives our ends. started closes what is the child's alone.
func connect(cmd *exec.Cmd) (stream io.ReadWriteCloser, started func(), err error) {
	inR, inW, err := os.Pipe()
	if err != nil {
		return nil, nil, fmt.Errorf("making a pipe: %w", err)
	}
	outR, outW, err := os.Pipe()
	if err != nil {
		inR.Close()
		inW.Close()
		return nil, nil, fmt.Errorf("making a pipe: %w", err)
	}
	cmd.Stdin, cmd.Stdout = inR, outW
	return pipes{outR, inW}, func() { inR.Close(); outW.Close() }, nil
}

type pipes struct{ in, out *os.File }

func (p pipes) Read(b []byte) (int, error)  { return p.in.Read(b) }
func (p pipes) Write(b []byte) (int, error) { return p.out.Write(b) }
func (p pipes) Close() error {
	p.in.Close()
	return p.out.Close()
}
