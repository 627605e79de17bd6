//go:build linux && (amd64 || arm64)

package linux

import (
	"context"
	"errors"
	"fmt"
	"os"

	"gvisor.dev/gvisor/pkg/sentry/control"
	"gvisor.dev/gvisor/pkg/state/statefile"
	"gvisor.dev/gvisor/pkg/urpc"
	"gvisor.dev/gvisor/runsc/boot"
)

// save has the sentry write all of the box to f, from where it goes on.
func (b *box) save(ctx context.Context, f *os.File) error {
	stop := context.AfterFunc(ctx, func() { b.control.Close() })
	defer stop()
	o := control.SaveOpts{
		Metadata: statefile.CompressionLevelNone.ToMetadata(), AppMFExcludeCommittedZeroPages: true,
		FilePayload: urpc.FilePayload{Files: []*os.File{f}}, Resume: true,
	}
	if err := b.control.Call(boot.ContMgrCheckpoint, &o, nil); err != nil {
		return fmt.Errorf("saving the box: %w", errors.Join(context.Cause(ctx), err))
	}
	return nil
}

// restore starts the box with its plan's state.
func (b *box) restore(ctx context.Context) error {
	o := boot.RestoreOpts{FilePayload: urpc.FilePayload{Files: []*os.File{b.plan.state}}}
	if err := b.control.Call(boot.ContMgrRestore, &o, nil); err != nil {
		return fmt.Errorf("restoring the box: %w", errors.Join(context.Cause(ctx), err))
	}
	return nil
}
