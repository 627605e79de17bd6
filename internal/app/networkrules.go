package app

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"paddock/internal/config"
	"paddock/internal/fault"
)

// rereadEvery is how often the configuration's file is checked for changes. Two seconds are
// soon for a person who changed it, and a check takes microseconds.
const rereadEvery = 2 * time.Second

// follower watches the configuration's file while the process runs. The zero value watches
// nothing.
type follower struct {
	end  chan struct{}
	done sync.WaitGroup
}

// follow applies changes of network.allow in the configuration's file at once. The
// environment and flags override the file, as when the process begins; a file with mistakes
// changes nothing, and neither does a change of a project's file that is not trusted yet.
// others are further files that it depends on.
func (n *network) follow(src config.Source, others ...string) {
	files := []string{src.File}
	if src.File == "" {
		files = slices.Concat(src.Search, others)
		if src.Project != "" {
			files = append(files, src.Project)
		}
	}
	if len(files) == 0 {
		return
	}
	n.follower.end = make(chan struct{})
	seen := describeFiles(files)
	n.follower.done.Go(func() {
		tick := time.NewTicker(rereadEvery)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
			case <-n.follower.end:
				return
			}
			if now := describeFiles(files); now != seen {
				seen = now
				n.reread(src)
			}
		}
	})
}

func (f *follower) close() {
	if f.end != nil {
		close(f.end)
		f.done.Wait()
		f.end = nil
	}
}

// describeFiles says in a few words how files are: it says something else when one has
// changed.
func describeFiles(files []string) string {
	var b strings.Builder
	for _, f := range files {
		if info, err := os.Stat(f); err == nil {
			fmt.Fprintf(&b, "%q %d %d\n", f, info.Size(), info.ModTime().UnixNano())
		}
	}
	return b.String()
}

// reread takes network.allow over from the configuration as it is now.
func (n *network) reread(src config.Source) {
	c, err := config.Load(src)
	if err == nil && n.ofProject && c.Ignored != "" {
		err = fault.New(fault.Denied, "%s has changed since it was trusted", c.Ignored).WithHint("paddock trust shows it and asks")
	}
	if err == nil {
		err = n.change(c.Network.Allow)
	}
	if err != nil {
		n.log.Warn("the configuration has changed and cannot be read: which hosts programs reach stays as it was", "cause", fault.CauseOf(err))
	}
}

// change makes these the operator's rules, for what is under way as well.
func (n *network) change(rules []string) error {
	if slices.Equal(rules, n.now.Load().rules) {
		return nil
	}
	next, err := parseOperatorPolicy(rules)
	if err != nil {
		return err
	}
	n.changing.Lock()
	defer n.changing.Unlock()
	n.now.Store(&next)
	for _, d := range n.opened() {
		policy, _ := next.narrowed(d.wished) // where it cannot be read nothing is reached
		d.SetPolicy(policy)
	}
	n.log.Info("network.allow has changed", "hosts", shortList(rules))
	return nil
}

// opened are the proxies that are open. The caller holds changing.
func (n *network) opened() (all []*sessionProxy) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, d := range n.proxies {
		if d.open {
			all = append(all, d)
		}
	}
	return all
}
