package install

import (
	"testing"

	"paddock/internal/sandbox"
	"paddock/internal/sandbox/sandboxtest"
	"paddock/internal/session"
	"paddock/internal/session/sessiontest"
)

func TestPipHasNoSecrets(t *testing.T) {
	var wished []*[]string
	m, err := session.New(session.Config{
		Dir: t.TempDir(), Backends: []sandbox.Backend{sandboxtest.NewFake(sandboxtest.FakeConfig{Name: wasm})},
		Secrets: &sessiontest.Secrets{OnChoose: func(_ session.Owner, wish *[]string) ([]string, error) {
			wished = append(wished, wish)
			return nil, nil
		}},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	_, end, err := place{New(Config{Sessions: m}), session.Info{Owner: session.Local, ID: "for"}}.apart(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := end(); err != nil {
		t.Error(err)
	}
	switch {
	case len(wished) != 1:
		t.Errorf("its session wished for: len(wished) = %d, want 1: %+v", len(wished), wished)
	case wished[0] == nil:
		t.Errorf("its session wished for: wished[0] is nil, want a value: %v", wished)
	case len(*wished[0]) != 0:
		t.Errorf("its session wished for: *wished[0] = %v, want none: %v", *wished[0], wished)
	}
}
