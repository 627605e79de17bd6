//go:build linux

package agent_test

import (
	"context"
	"os"
	"testing"

	"paddock/internal/sandbox"
	"paddock/internal/sandbox/wire"
)

var smallest = map[string]string{"python": "1", "javascript": "1", "bash": ":", "command": "true"}

// BenchmarkRun is a run that does nothing, in a kernel that is there.
func BenchmarkRun(b *testing.B) { benchmark(b, false) }

// BenchmarkStart is a kernel's start and end with one such run.
func BenchmarkStart(b *testing.B) { benchmark(b, true) }

func benchmark(b *testing.B, anew bool) {
	if os.Geteuid() != 0 {
		b.Skip("a file system of the test's own needs root")
	}
	p, err := startAgent(b.Context(), &root{Private: true})
	if err != nil {
		b.Fatal(err)
	}
	defer p.close()
	for runtime, code := range smallest {
		b.Run(runtime, func(b *testing.B) {
			var in *wire.Instance
			for b.Loop() {
				if in == nil || anew {
					if in, err = p.client.Start(context.Background(), wire.StartBody{Runtime: runtime}); err != nil {
						b.Fatal(err)
					}
				}
				if exit, err := in.Run(context.Background(), sandbox.Command{Code: code}); err != nil || exit.Code != 0 {
					b.Fatal(exit, err)
				}
				if anew {
					in.Close()
				}
			}
			in.Close()
		})
	}
}
