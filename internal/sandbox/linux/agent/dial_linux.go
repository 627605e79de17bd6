package agent

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"strconv"
	"sync"
	"time"

	"paddock/internal/fault"
	"paddock/internal/sandbox/wire"
)

// dialTime bounds how long a program of the box may take to be connected to.
const dialTime = 5 * time.Second

// stream takes a frame about a connection to a port of the box.
func (a *agent) stream(f wire.Frame) error {
	if f.Kind != wire.KindDial {
		return a.streams.Deliver(f)
	}
	var body wire.DialBody
	if err := json.Unmarshal(f.Body, &body); err != nil {
		return fmt.Errorf("reading a dial: %w", err)
	}
	s, err := a.streams.Open(f.ID) // here: data may follow at once
	if err != nil {
		a.send(wire.KindDialed, f.ID, wire.Refusal(fault.Of(err)))
		return nil
	}
	a.loop.Go(func() { a.connect(f.ID, s, body.Port) })
	return nil
}

// connect carries bytes between a stream and a port until both are done with it.
func (a *agent) connect(id uint32, s *wire.Stream, port uint16) {
	defer s.Close()
	conn, err := dialPort(port)
	if err != nil {
		a.send(wire.KindDialed, id, wire.Refusal(fault.New(fault.Unavailable, "nobody in the sandbox listens at port %d", port).
			WithHint("start a program there that does, at 127.0.0.1 or all addresses")))
		return
	}
	defer conn.Close()
	a.send(wire.KindDialed, id, wire.AnswerBody{})
	var both sync.WaitGroup
	both.Go(func() {
		if _, err := io.Copy(conn, s); err != nil || s.Over() {
			conn.Close()
			s.Close()
			return
		}
		_ = conn.CloseWrite() // it may be closed by now
	})
	if _, err := io.Copy(s, conn); err != nil {
		conn.Close()
		s.Close()
	} else {
		_ = s.CloseWrite() // without the server there is nobody to tell
	}
	both.Wait()
}

// dialPort connects to a program that listens on the box's loopback network.
func dialPort(port uint16) (*net.TCPConn, error) {
	d := net.Dialer{Timeout: dialTime}
	var conn net.Conn
	var err error
	for _, host := range []string{"127.0.0.1", "::1"} {
		if conn, err = d.Dial("tcp", net.JoinHostPort(host, strconv.Itoa(int(port)))); err == nil {
			return conn.(*net.TCPConn), nil
		}
	}
	return nil, err
}
