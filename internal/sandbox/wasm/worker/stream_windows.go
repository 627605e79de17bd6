package worker

import (
	"io"
	"os"
)

// inherited is the stream to the server: a pipe each way.
func inherited() (io.ReadWriteCloser, error) { return pipes{os.Stdin, os.Stdout}, nil }

type pipes struct{ in, out *os.File }

func (p pipes) Read(b []byte) (int, error)  { return p.in.Read(b) }
func (p pipes) Write(b []byte) (int, error) { return p.out.Write(b) }
func (p pipes) Close() error {
	p.in.Close()
	return p.out.Close()
}
