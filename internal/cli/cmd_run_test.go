package cli

import (
	"testing"
	"time"

	"paddock/internal/session"
)

func TestTheTimeLimitOfAPersonsRun(t *testing.T) {
	for _, test := range []struct {
		name string
		args []string
		want time.Duration
	}{
		{"is none", nil, session.Unlimited},
		{"is the flag's", []string{"--timeout", "5s"}, 5 * time.Second},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Setenv("XDG_CONFIG_HOME", t.TempDir())
			t.Chdir(t.TempDir())
			cmd := runCommand{&cli{}}
			c := cmd.command()
			c.Flags().String("config", "", "")
			if err := c.ParseFlags(test.args); err != nil {
				t.Fatal(err)
			}
			if err := cmd.load(c); err != nil {
				t.Fatal(err)
			}
			sc := session.Config{DefaultTimeout: cmd.Config.Sessions.DefaultTimeout}
			if cmd.personal(&sc); sc.DefaultTimeout != test.want {
				t.Errorf("the limit is %v, want %v", sc.DefaultTimeout, test.want)
			}
		})
	}
}
