//go:build unix

package worker

import (
	"fmt"
	"io"
	"net"
	"os"
)

// inherited is the stream to the server: a socket on standard input.
func inherited() (io.ReadWriteCloser, error) {
	conn, err := net.FileConn(os.Stdin)
	if err != nil {
		return nil, fmt.Errorf("the standard input is not the server's socket: %w", err)
	}
	return conn, os.Stdin.Close()
}
