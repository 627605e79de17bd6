// Package tabletest is what every [table.Table] has to do, and both kinds of tables for the
// tests of the stores that use them.
package tabletest

import (
	"context"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"paddock/internal/table"
	"paddock/internal/table/natstable"
)

// Server starts a NATS server in this process, with a folder of the test's, and gives a
// connection to it. It syncs each message, as a cluster's servers do.
func Server(t testing.TB) *nats.Conn {
	t.Helper()
	s, err := server.NewServer(&server.Options{
		DontListen: true, JetStream: true, StoreDir: t.TempDir(), SyncAlways: true, NoSigs: true, NoLog: true,
	})
	if err != nil {
		t.Fatal(err)
	}
	go s.Start()
	t.Cleanup(func() {
		s.Shutdown()
		s.WaitForShutdown()
	})
	if !s.ReadyForConnections(20 * time.Second) {
		t.Fatal("the NATS server does not start")
	}
	conn, err := nats.Connect("", nats.InProcessServer(s))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(conn.Close)
	return conn
}

// Open gives the table of a bucket at a server of its own.
func Open(t testing.TB) table.Table {
	t.Helper()
	return open(t, Server(t))
}

func open(t testing.TB, conn *nats.Conn) table.Table {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	all, err := natstable.Open(ctx, conn, natstable.Config{Bucket: "paddock", Replicas: 1})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// Both runs a test of a store with the tables that it can be in: first with local, which
// is what it has on one machine, and then with a cluster's.
func Both(t *testing.T, local func(t *testing.T) table.Table, test func(t *testing.T, in table.Table)) {
	t.Helper()
	t.Run("folder", func(t *testing.T) { test(t, local(t)) })
	t.Run("nats", func(t *testing.T) { test(t, Open(t)) })
}
