package workspace

import (
	"crypto/rand"
	"sync"
)

// thisBoot names this run of the operating system; where that is not known,
// this process.
var thisBoot = sync.OnceValue(func() string {
	if id := bootID(); id != "" && len(id) <= maxBoot {
		return id
	}
	return rand.Text()
})

// Boot names this run of the operating system: what was written and not synced
// is there as long as it lasts. Where that is not known, it names this process.
func Boot() string { return thisBoot() }
