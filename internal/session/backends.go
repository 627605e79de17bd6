package session

import (
	"context"
	"log/slog"
	"slices"

	"paddock/internal/fault"
	"paddock/internal/sandbox"
)

// backends are the isolations that sessions can have. They do not change, so they are
// safe for concurrent use.
type backends struct {
	all []sandbox.Backend // the first is the default
	log *slog.Logger
}

// named returns the backend of a name; "" names the first.
func (bs *backends) named(name string) (sandbox.Backend, error) {
	var names []string
	for _, b := range bs.all {
		if name == "" || b.Name() == name {
			return b, nil
		}
		names = append(names, b.Name())
	}
	return nil, fault.New(fault.Unsupported, "there is no isolation called %q here", name).WithHint("there is %s", enumerate(names))
}

// runtimes lists what can run here, by backend in their order.
func (bs *backends) runtimes(ctx context.Context) []Runtime {
	var all []Runtime
	for _, b := range bs.all {
		p, err := guard("probing", func() (sandbox.Probe, error) { return b.Probe(ctx), nil })
		if err != nil {
			bs.log.Error("a backend cannot be probed", "isolation", b.Name(), "cause", fault.CauseOf(err))
			continue
		}
		for _, r := range p.Runtimes {
			all = append(all, Runtime{Runtime: r, Isolation: b.Name()})
		}
	}
	return all
}

// runtimeFor finds the backend's runtime of a language; "" stands for the first.
func (bs *backends) runtimeFor(ctx context.Context, b sandbox.Backend, language string) (sandbox.Runtime, error) {
	probe, err := guard("probing", func() (sandbox.Probe, error) { return b.Probe(ctx), nil })
	if err != nil {
		return sandbox.Runtime{}, err
	}
	if !probe.Available {
		return sandbox.Runtime{}, fault.New(fault.Unavailable, "the isolation %q does not work here: %s", b.Name(), probe.Reason).WithHint("%s", probe.Hint)
	}
	var known []string
	for _, r := range probe.Runtimes {
		if language == "" || slices.Contains(r.Languages, language) {
			return r, nil
		}
		known = append(known, r.Languages...)
	}
	f := fault.New(fault.Unsupported, "the isolation %q does not run %q", b.Name(), language)
	if other := bs.whoRuns(ctx, language); other != "" {
		return sandbox.Runtime{}, f.WithHint("the isolation %q does: create a session with it; this one runs %s", other, enumerate(known))
	}
	return sandbox.Runtime{}, f.WithHint("it runs %s", enumerate(known))
}

// whoRuns names another isolation that runs a language here; empty: none.
func (bs *backends) whoRuns(ctx context.Context, language string) string {
	for _, r := range bs.runtimes(ctx) {
		if language != "" && slices.Contains(r.Languages, language) {
			return r.Isolation
		}
	}
	return ""
}
