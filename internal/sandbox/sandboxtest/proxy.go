package sandboxtest

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"path/filepath"
	"testing"
	"time"

	"paddock/internal/fault"
	"paddock/internal/sandbox"
)

// answering serves a proxy's connections as the suite's programs expect it: a line is
// answered by a name and the line.
func answering(name string) func(context.Context, net.Conn) {
	return func(_ context.Context, conn net.Conn) {
		for lines := bufio.NewScanner(conn); lines.Scan(); {
			fmt.Fprintln(conn, name, lines.Text())
		}
	}
}

// testProxy is about the way out that a machine's programs have.
func (k *kit) testProxy(t *testing.T) {
	if k.Proxied == nil {
		t.Skip("this language connects to nothing")
	}
	boxed := func(t *testing.T, serve func(context.Context, net.Conn)) sandbox.Spec {
		spec := k.boxed(t)
		spec.Proxy = serve
		return spec
	}
	if !k.suite.Machine {
		t.Run("without machines no notice is taken of it", func(t *testing.T) {
			in := k.start(t, boxed(t, func(context.Context, net.Conn) { t.Error("it was connected to") }))
			works(t, in, k.Proxied("here"), "refused")
		})
		return
	}
	t.Run("without one no host is reached", func(t *testing.T) {
		works(t, k.start(t, k.boxed(t)), k.Proxied("here"), "refused")
	})
	t.Run("each connection is served", func(t *testing.T) {
		spec := boxed(t, answering("hello"))
		in := k.start(t, spec)
		for _, text := range []string{"one", "two", "three"} {
			works(t, in, k.Proxied(text), "hello "+text)
		}
		if _, shared := k.backend.(sandbox.Machines); !shared {
			return
		}
		spec.Proxy = nil
		_, err := k.backend.Start(t.Context(), spec)
		wantFault(t, err, fault.Conflict)
	})
	t.Run("its connections keep deadlines and end with ctx", func(t *testing.T) { k.testProxyConn(t, boxed) })
	t.Run("what is saved has none until it is given one", k.withMachines(func(k machineKit, t *testing.T) {
		spec := boxed(t, answering("first"))
		in := k.start(t, spec)
		works(t, in, k.Proxied("one"), "first one")
		state := k.save(t, spec)
		works(t, in, k.Proxied("two"), "first two")
		in.Close()
		for _, name := range []string{"second", "third"} {
			spec.Proxy = answering(name)
			state.Reseed = name == "third"
			again := k.again(t, spec, state)
			works(t, again, k.Proxied("here"), name+" here")
			again.Close()
		}
		spec.Proxy = nil
		works(t, k.again(t, spec, state), k.Proxied("here"), "refused")
	}))
	t.Run("what is booted ahead has that of whom it was given to", func(t *testing.T) {
		adopter, ok := k.backend.(sandbox.Adopter)
		if !ok {
			t.Skip("this backend boots no machines ahead")
		}
		spec := boxed(t, func(context.Context, net.Conn) { t.Error("a connection came for no session") })
		spec.Owner, spec.Box = "", filepath.Base(t.TempDir())+spec.Box
		in := k.start(t, spec)
		spec.Owner, spec.Proxy = "alice", nil
		wantFault(t, adopter.Adopt(t.Context(), in, spec), fault.Conflict)
		spec.Proxy = answering("alice's")
		if err := adopter.Adopt(t.Context(), in, spec); err != nil {
			t.Fatal(err)
		}
		works(t, in, k.Proxied("here"), "alice's here")
	})
}

func (k *kit) testProxyConn(t *testing.T, boxed func(*testing.T, func(context.Context, net.Conn)) sandbox.Spec) {
	ended := make(chan error, 1)
	in := k.start(t, boxed(t, func(ctx context.Context, conn net.Conn) {
		in := bufio.NewReader(conn)
		_, _ = in.ReadString('\n')
		_ = conn.SetReadDeadline(time.Now().Add(time.Millisecond))
		_, err := in.ReadByte()
		if late, ok := err.(net.Error); !ok || !late.Timeout() {
			t.Errorf("after the deadline: %v", err)
		}
		_ = conn.SetReadDeadline(time.Time{})
		fmt.Fprintln(conn, "late")
		if half, ok := conn.(interface{ CloseWrite() error }); !ok || half.CloseWrite() != nil {
			t.Error("it cannot say that nothing more comes")
		}
		<-ctx.Done()
		ended <- context.Cause(ctx)
	}))
	works(t, in, k.Proxied("here"), "late")
	in.Close()
	if err := await(t, "the end of what serves", ended); err == nil {
		t.Error("it does not say that it ended")
	}
}
