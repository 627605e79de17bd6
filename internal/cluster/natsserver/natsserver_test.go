package natsserver

import (
	"testing"
	"time"

	"paddock/internal/fault"
)

func TestAServerNeedsWhatKeepsItSafe(t *testing.T) {
	whole := Config{Name: "n", Dir: t.TempDir(), Listen: "127.0.0.1:0", MaxBytes: 1 << 20}
	for what, c := range map[string]struct {
		change func(*Config)
		want   fault.Kind
	}{
		"no name":                     {func(c *Config) { c.Name = "" }, fault.Invalid},
		"no limit":                    {func(c *Config) { c.MaxBytes = 0 }, fault.Invalid},
		"not an address":              {func(c *Config) { c.Listen = "here" }, fault.Invalid},
		"open without a certificate":  {func(c *Config) { c.Listen = "0.0.0.0:0" }, fault.Denied},
		"routes, without certificate": {func(c *Config) { c.Cluster = "10.0.0.1:6222" }, fault.Denied},
	} {
		cfg := whole
		c.change(&cfg)
		if s, err := Start(cfg); fault.KindOf(err) != c.want {
			if s != nil {
				s.Close()
			}
			t.Errorf("%s: got %v, want %s", what, err, c.want)
		}
	}
}

func TestAServerSyncsAndElectsSoon(t *testing.T) {
	cfg := Config{Name: "n", Dir: t.TempDir(), Listen: "127.0.0.1:0", MaxBytes: 1 << 20}
	s, err := Start(cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	js := s.nats.JetStreamConfig()
	if js == nil || !js.SyncAlways {
		t.Errorf("the server's store has %+v, want sync always", js)
	}
	if minElection != 600*time.Millisecond || maxElection != 1200*time.Millisecond || heartbeat != 150*time.Millisecond {
		t.Errorf("elections begin after %v to %v, beats are %v apart", minElection, maxElection, heartbeat)
	}
}
