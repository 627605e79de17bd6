package app

import (
	"cmp"
	"context"
	"crypto/hkdf"
	"crypto/sha256"
	"fmt"
	"net/http"
	"path/filepath"
	"runtime"
	"strings"

	"paddock/internal/audit"
	"paddock/internal/e2b"
	"paddock/internal/fault"
	"paddock/internal/session"
	"paddock/internal/telemetry"
	"paddock/internal/web"
)

// e2bKeyBytes is how long the key is that the tokens of sandboxes are made of.
const e2bKeyBytes = 32

// addE2B adds the API for E2B's clients.
func (a *App) addE2B(h *HTTP, wc *web.Config) error {
	c := a.Config
	if !c.E2B.Enabled {
		return nil
	}
	seeds := caSeeds{dir: a.StateDir, vault: a.Vault()}
	cpus := int(c.Sandbox.CPUs)
	memory, _ := c.MachineMemory()
	server, err := e2b.New(e2b.Config{
		Sessions: a.Sessions, Dir: filepath.Join(a.StateDir, "e2b"),
		Key: func() ([]byte, error) {
			secret, err := seeds.secret()
			if err != nil {
				return nil, err
			}
			return hkdf.Key(sha256.New, secret, nil, "paddock sandboxes of E2B's clients", e2bKeyBytes)
		},
		Templates: c.E2BTemplates(), Domain: func() string { return strings.TrimPrefix(after(h.PreviewURL("x"), "://"), "x.") },
		CPUs: cmp.Or(cpus, runtime.NumCPU()), MemoryBytes: memory, DiskBytes: c.Sessions.DiskBytes,
		Alive: a.alive(), Admit: func(o session.Owner) (func(), error) { return a.admit(context.Background(), string(o), true) },
		Told: a.toldByE2B, Log: a.Log,
	})
	if err != nil {
		return fmt.Errorf("making E2B's API: %w", err)
	}
	h.ends = append(h.ends, server.Close)
	wc.E2B, wc.E2BOwnToken = telemetry.Joined(server), func(r *http.Request) bool { return e2b.ForSandbox(r) }
	return nil
}

func after(text, mark string) string {
	_, rest, _ := strings.Cut(text, mark)
	return rest
}

// toldByE2B records what E2B's clients do in sandboxes. An error keeps a process from starting.
func (b *base) toldByE2B(ctx context.Context, e e2b.Event) error {
	r := audit.Record{Principal: string(e.Owner), Session: string(e.Session), Target: e.Target}
	switch e.Action {
	case e2b.Starting:
		r.Action, r.Language, r.Isolation, r.Code, r.Phase = audit.Execute, "bash", "linux", e.Code, audit.End
		if e.Status == 0 {
			r.Phase = audit.Begin
			return b.Audit.Write(ctx, r)
		}
	case e2b.Reading:
		r.Action = audit.FileRead
	case e2b.Writing:
		r.Action = audit.FileWrite
	}
	r.Outcome = audit.Success
	if e.Status >= http.StatusBadRequest {
		r.Outcome, r.ErrorType = audit.Error, string(fault.Internal)
		if e.Status < http.StatusInternalServerError {
			r.ErrorType = string(fault.Invalid)
		}
	}
	return b.Audit.Write(ctx, r)
}
