package natstable_test

import (
	"context"
	"fmt"
	"net"
	"net/url"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"paddock/internal/fault"
	"paddock/internal/table"
	"paddock/internal/table/natstable"
)

// three starts a cluster of servers in this process.
func three(t *testing.T) (all []*server.Server) {
	t.Helper()
	var routes []*url.URL
	for range 3 {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		routes = append(routes, &url.URL{Scheme: "nats-route", Host: l.Addr().String()})
	}
	for i, own := range routes {
		port, err := strconv.Atoi(own.Port())
		if err != nil {
			t.Fatal(err)
		}
		s, err := server.NewServer(&server.Options{
			ServerName: fmt.Sprint("n", i), Host: "127.0.0.1", Port: -1, JetStream: true, StoreDir: t.TempDir(), SyncAlways: true, NoSigs: true, NoLog: true,
			Cluster: server.ClusterOpts{Name: "c", Host: "127.0.0.1", Port: port}, Routes: routes,
		})
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, s)
		t.Cleanup(func() {
			s.Shutdown()
			s.WaitForShutdown()
		})
	}
	return all
}

func start(t *testing.T, all []*server.Server) {
	t.Helper()
	for _, s := range all {
		go s.Start()
	}
	for late := time.Now().Add(time.Minute); ; time.Sleep(20 * time.Millisecond) {
		ready := true
		for _, s := range all {
			ready = ready && s.ReadyForConnections(time.Second) && s.JetStreamIsCurrent()
		}
		if ready {
			return
		}
		if time.Now().After(late) {
			t.Fatal("the servers do not become one cluster")
		}
	}
}

// TestNoChangeIsLostOrTwiceWhenTheLeaderGoes counts by three hands while the stream's leader
// is shut down.
func TestNoChangeIsLostOrTwiceWhenTheLeaderGoes(t *testing.T) {
	servers := three(t)
	start(t, servers)
	var urls string
	for _, s := range servers {
		urls += "," + s.ClientURL()
	}
	const hands = 3
	var tables []*natstable.Table
	for range hands {
		conn, err := nats.Connect(urls[1:], nats.MaxReconnects(-1), nats.ReconnectWait(20*time.Millisecond))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(conn.Close)
		in, err := natstable.Open(t.Context(), conn, natstable.Config{Bucket: "b"})
		if err != nil {
			t.Fatal(err)
		}
		tables = append(tables, in)
	}
	count := func(in table.Table) error {
		return table.Alone(t.Context(), in, "n", func(ctx context.Context) error {
			d, err := in.Get(ctx, "n", table.None)
			if err != nil {
				return err
			}
			n, err := strconv.Atoi(string(d.Data))
			if err == nil {
				_, err = in.Put(ctx, "n", strconv.AppendInt(nil, int64(n+1), 10), d.Revision)
			}
			return err
		})
	}
	if _, err := tables[0].Put(t.Context(), "n", []byte("0"), table.None); err != nil {
		t.Fatal(err)
	}
	const each = 30
	var known, unknown atomic.Int32 // counts that were acknowledged, and that were given up
	var counting sync.WaitGroup
	half := make(chan struct{}, hands)
	for _, in := range tables {
		counting.Go(func() {
			for i := range each {
				if i == each/2 {
					half <- struct{}{}
				}
				switch err := count(in); {
				case err == nil:
					known.Add(1)
				case fault.KindOf(err) == fault.Unavailable: // an election took too long
					unknown.Add(1)
				default:
					t.Error(err)
				}
			}
		})
	}
	<-half
	for _, s := range servers {
		if s.JetStreamIsStreamLeader("$G", "KV_b") {
			s.Shutdown()
		}
	}
	counting.Wait()
	d, err := tables[0].Get(t.Context(), "n", table.None)
	n, _ := strconv.Atoi(string(d.Data))
	if least := int(known.Load()); err != nil || n < least || n > least+int(unknown.Load()) {
		t.Errorf("%d were counted, %d perhaps, and there is %s (%v)", known.Load(), unknown.Load(), d.Data, err)
	}
	if known.Load() <= hands*each/2 {
		t.Errorf("only %d were counted", known.Load())
	}
}
