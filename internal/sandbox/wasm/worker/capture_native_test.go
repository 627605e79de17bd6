//go:build native

package worker

import (
	"testing"

	"paddock/guest"
)

func TestAnImageIsTheSameOnBothEngines(t *testing.T) {
	loaders := bothEngines(t)
	for _, name := range guest.Available() {
		t.Run(name, func(t *testing.T) {
			one, oneDigest := captured(t, loaders[0], name)
			two, twoDigest := captured(t, loaders[1], name)
			sameImages(t, one, two, oneDigest, twoDigest)
		})
	}
}
