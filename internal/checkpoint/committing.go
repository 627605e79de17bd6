package checkpoint

import (
	"context"

	"paddock/internal/blob"
)

// Committing is a checkpoint that is about to be made: all that it adds to what earlier
// ones hold.
type Committing struct {
	Number   int64
	Manifest []byte // its file
	// Contents are those of its contents that were looked at for it, also where an earlier
	// checkpoint has them. They can be opened until Local is called.
	Contents []blob.Stored
	// Dropped are the numbers of the checkpoints that are given up with it.
	Dropped []int64
	// Local writes it to this machine's disk, where it is when that returns.
	Local func() error
}

// commit makes a checkpoint last: on this machine's disk, or as the session's Config says.
func (d *draft) commit(ctx context.Context, dropped []int64, writes []blob.Write) error {
	local := func() error { return d.batch.Commit(ctx, writes...) }
	if d.k.c.Commit == nil {
		return local()
	}
	return d.k.c.Commit(ctx, Committing{
		Number: d.next.Number, Manifest: writes[len(writes)-1].Data, // which is last, as it refers to all others
		Contents: d.batch.Contents(), Dropped: dropped, Local: local,
	})
}
