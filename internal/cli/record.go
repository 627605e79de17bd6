package cli

import (
	"context"
	"errors"

	"paddock/internal/audit"
	"paddock/internal/auth"
)

// recordAction writes to the audit log what this machine's user does by a command. The
// configuration has been loaded.
func (cl *cli) recordAction(ctx context.Context, action, target string) error {
	log := cl.OpenAudit()
	err := log.Write(ctx, audit.Record{Action: action, Principal: auth.Local, Target: target, Outcome: audit.Success})
	return errors.Join(err, log.Close())
}
