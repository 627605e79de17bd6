package broker

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
	"sync"

	"paddock/internal/bindings"
	"paddock/internal/bindings/schema"
	"paddock/internal/bindings/stub"
	"paddock/internal/linkfarm"
)

// maxViews is how many views are kept; each holds little that its listing does not.
const maxViews = 10_000

// views are what owners see of servers.
type views struct {
	mu  sync.Mutex // guards what follows
	all map[viewKey]*view
}

type viewKey struct{ sign, owner string }

// view is a listing as those of an owner see it: without what the policy denies, and
// with what was learned from results that they were given. It is not changed: who has
// the same view again knows that nothing is different.
type view struct {
	name    string // the server's
	listing *listing
	lessons *lessons        // nil: none
	base    *view           // the same without lessons; nil: this is it
	tools   []bindings.Tool // with the lessons
	taught  []string        // the names of the tools that lessons changed

	once   sync.Once
	digest string // names the files that are made of it
}

// view gives what an owner sees of a server.
func (b *Broker) view(one *serverBinding, owner string, l *listing) *view {
	base := b.views.get(viewKey{sign: one.sign}, l, nil, func() *view {
		v := &view{name: one.Name, listing: l, tools: l.tools}
		if slices.ContainsFunc(l.tools, func(t bindings.Tool) bool { return !one.allows(t) }) {
			v.tools = slices.DeleteFunc(slices.Clone(l.tools), func(t bindings.Tool) bool { return !one.allows(t) })
		}
		if !one.Raw {
			v.tools = unwrapped(v.tools)
		}
		return v
	})
	lessons := b.learned.of(owner, one.lessons())
	if lessons == nil {
		return base
	}
	v := b.views.get(viewKey{one.sign, owner}, l, lessons, func() *view { return base.taughtBy(lessons) })
	if len(v.taught) == 0 {
		return base
	}
	return v
}

// unwrapped gives tools with the output schemas of what programs get of them.
func unwrapped(tools []bindings.Tool) []bindings.Tool {
	var own []bindings.Tool // nil: they are as they were
	for i, t := range tools {
		inner := schema.Unwrapped(t.Output)
		if inner == nil {
			continue
		}
		if own == nil {
			own = slices.Clone(tools)
		}
		own[i].Output = inner
	}
	if own == nil {
		return tools
	}
	return own
}

// taughtBy gives the view with lessons.
func (v *view) taughtBy(of *lessons) *view {
	next := &view{name: v.name, listing: v.listing, lessons: of, base: v, tools: slices.Clone(v.tools)}
	for i, t := range next.tools {
		if output := of.outputs[t.Name]; output != nil && len(t.Output) == 0 {
			next.tools[i].Output = output
			next.taught = append(next.taught, t.Name)
		}
	}
	return next
}

// get gives a view if it is still one of what there is, and makes it if not.
func (x *views) get(key viewKey, l *listing, of *lessons, fresh func() *view) *view {
	x.mu.Lock()
	defer x.mu.Unlock()
	if v := x.all[key]; v != nil && v.listing == l && v.lessons == of {
		return v
	}
	if len(x.all) >= maxViews || x.all == nil {
		x.all = map[viewKey]*view{} // they are made again as they are needed
	}
	v := fresh()
	x.all[key] = v
	return v
}

// named gives the digest of the files that are made of the view.
func (v *view) named() string {
	v.once.Do(func() {
		h := sha256.New()
		if v.base != nil {
			fmt.Fprintf(h, "%s\n", v.base.named())
			for _, t := range v.tools {
				if slices.Contains(v.taught, t.Name) {
					fmt.Fprintf(h, "%q %q\n", t.Name, t.Output)
				}
			}
		} else {
			fmt.Fprintf(h, "2 %s %q\n", stub.Version(), v.name)
			lines := []string{}
			for _, t := range v.tools {
				lines = append(lines, fmt.Sprintf("%q %q %q %q %q\n", t.Name, t.Title, t.Description, t.Input, t.Output))
			}
			slices.Sort(lines)
			h.Write([]byte(strings.Join(lines, "")))
		}
		v.digest = hex.EncodeToString(h.Sum(nil))
	})
	return v.digest
}

// tree says how the files of a view are made, for an owner. Only those that lessons changed
// are made for a view that has some.
func (v *view) tree(owner string) *linkfarm.Tree {
	t := &linkfarm.Tree{Owner: owner, Digest: v.named()}
	if v.base == nil {
		t.Files = func() []linkfarm.File { return treeFiles(stub.Generate(v.name, v.tools).Files) }
		return t
	}
	t.Base = v.base.tree(owner)
	t.Files = func() []linkfarm.File { return treeFiles(stub.Differing(v.name, v.tools, v.taught)) }
	return t
}

func treeFiles(files []stub.File) []linkfarm.File {
	all := make([]linkfarm.File, len(files))
	for i, file := range files {
		all[i] = linkfarm.File{Path: file.Path, Data: file.Data}
	}
	return all
}
