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
	if len(wished) != 1 || wished[0] == nil || len(*wished[0]) != 0 {
		t.Errorf("its session wished for %v", wished)
	}
}
