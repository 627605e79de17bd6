package natsserver

import (
	"sync"
	"time"
	_ "unsafe" // for go:linkname

	"paddock/internal/fault"
)

// An election of NATS begins 4 to 9 seconds after the leader's last sign of life, and no
// option changes that. These are the variables of the server's package that say so.

//go:linkname minElection github.com/nats-io/nats-server/v2/server.minElectionTimeout
var minElection time.Duration

//go:linkname maxElection github.com/nats-io/nats-server/v2/server.maxElectionTimeout
var maxElection time.Duration

//go:linkname heartbeat github.com/nats-io/nats-server/v2/server.hbInterval
var heartbeat time.Duration

// quicken makes elections begin after 0.6 to 1.2 seconds, for all servers of this process.
// A version of the server that has other variables is refused: they would be set in vain.
var quicken = sync.OnceValue(func() error {
	if minElection != 4*time.Second || maxElection != 9*time.Second || heartbeat != time.Second {
		return fault.New(fault.Internal, "this version of nats-server keeps the times of its elections elsewhere").
			WithHint("use the version that go.mod names")
	}
	minElection, maxElection, heartbeat = 600*time.Millisecond, 1200*time.Millisecond, 150*time.Millisecond
	return nil
})
