package fault_test

import (
	"errors"
	"fmt"
	"testing"

	"paddock/internal/fault"
)

func TestTheCauseIsForOperators(t *testing.T) {
	disk := errors.New("disk")
	bare := fault.New(fault.Unavailable, "it failed")
	for name, c := range map[string]struct{ err, want error }{
		"nothing":                 {nil, nil},
		"what is not a fault":     {disk, disk},
		"a fault without a cause": {bare, bare},
		"a fault with one":        {fmt.Errorf("keeping: %w", bare.WithCause(disk)), disk},
	} {
		if got := fault.CauseOf(c.err); got != c.want {
			t.Errorf("of %s: %v, want %v", name, got, c.want)
		}
	}
}
