package localhost_test

import (
	"testing"

	"paddock/internal/localhost"
)

func TestHostsOfThisMachine(t *testing.T) {
	for host, want := range map[string]bool{
		"localhost": true, "127.0.0.1": true, "127.9.9.9": true, "::1": true, "::ffff:127.0.0.1": true,
		"": false, "localhost.": false, "a.localhost": false, "localhost.example.com": false, "0.0.0.0": false,
		"::": false, "10.0.0.1": false, "127.0.0.1.example.com": false, "[::1]": false, "127.1": false,
	} {
		if got := localhost.Is(host); got != want {
			t.Errorf("%q is this machine: %v, want %v", host, got, want)
		}
	}
}
