package proxy

import (
	"crypto/sha256"
	"encoding/hex"
	"sync"
	"time"
)

// Decision is what became of a request.
type Decision string

// The decisions.
const (
	Allowed   Decision = "allowed"   // it was sent, or would have been: see the status and the cause
	Denied    Decision = "denied"    // a rule, or none, or what it was, kept it back
	Exhausted Decision = "exhausted" // a budget kept it back, or cut it short
	Local     Decision = "local"     // paddock answered it itself
)

// Record is what the audit log gets of one request, or of a connection on which there was
// none. It holds no query, header, body or secret.
type Record struct {
	Session string
	Time    time.Time // when it began
	Scheme  string    // "http", "https"; "": not known
	Host    string    // canonical; "": what was asked for is not a host
	Port    int
	Method  string
	// Path is the SHA-256 of the path without its query, the first 16 bytes in
	// hexadecimal: paths may hold what gives access.
	Path     string
	Decision Decision
	Rule     string // that allowed it
	Status   int    // of the answer that the program got; 0: none
	Sent     int64  // bytes to the host
	Received int64  // bytes from it
	Duration time.Duration
	// Cause is why it was refused, cut short or failed, as one of a few words
	// ("host", "request", "address", "mismatch", "protocol", "method", "secret", "budget",
	// "connections", "policy", "idle", "dns", "tls", "unreachable", "gone", "closed", "internal"); "": it
	// ended as it should.
	Cause string
}

// The causes.
const (
	reasonHost     = "host"     // no rule allows it
	reasonRequest  = "request"  // rules allow the host, but not this request
	reasonAddress  = "address"  // the host leads to where it may not
	reasonMismatch = "mismatch" // it is for another host than its connection
	reasonProtocol = "protocol" // it is not HTTP, or wants to become something else
	reasonMethod   = "method"   // CONNECT or TRACE
	reasonSecret   = "secret"   // a placeholder may not go there
	reasonBudget   = "budget"
	reasonCrowd    = "connections" // too many are open at once
	reasonPolicy   = "policy"      // the rules changed under way
	reasonIdle     = "idle"
	reasonDNS      = "dns"
	reasonTLS      = "tls"
	reasonDown     = "unreachable"
	reasonGone     = "gone"   // the program went away
	reasonClosed   = "closed" // the proxy was
	reasonInternal = "internal"
)

// pathDigest is a path as records have it.
func pathDigest(path string) string {
	sum := sha256.Sum256([]byte(path))
	return hex.EncodeToString(sum[:16])
}

// Denial is a refusal as a run's result tells it: in a sentence, with what to do.
type Denial struct {
	Host    string `json:"host"`
	Port    int    `json:"port"`
	Method  string `json:"method"`
	Cause   string `json:"cause"` // as in Record
	Message string `json:"message"`
	Hint    string `json:"hint"`
	Count   int    `json:"count"`
}

// denials collects, each kind of refusal once.
type denials struct {
	mu   sync.Mutex
	list []Denial
}

const maxDenials = 20

func (d *denials) add(n Denial) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for k := range d.list {
		if l := &d.list[k]; l.Host == n.Host && l.Port == n.Port && l.Method == n.Method && l.Cause == n.Cause {
			l.Count++
			return
		}
	}
	if len(d.list) < maxDenials {
		n.Count = 1
		d.list = append(d.list, n)
	}
}

func (d *denials) take() []Denial {
	d.mu.Lock()
	defer d.mu.Unlock()
	list := d.list
	d.list = nil
	return list
}
