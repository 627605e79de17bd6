package wire

import (
	"context"
	"strings"
	"testing"
	"time"

	"paddock/internal/sandbox"
)

// A child that wants more translated than it may does not keep to the protocol.
func TestAChildTranslatesNoMoreThanItMay(t *testing.T) {
	for name, ask := range map[string]func(child){
		"three at once": func(c child) {
			for n := range uint32(TranslationsAtOnce + 1) {
				c.send(KindTranslate, n, sandbox.Source{Code: "a"})
			}
		},
		"a long program": func(c child) {
			c.send(KindTranslate, 1, sandbox.Source{Code: strings.Repeat("a", sandbox.MaxSource+1)})
		},
		"nothing": func(c child) { c.send(KindTranslate, 1, 7) },
	} {
		t.Run(name, func(t *testing.T) {
			client := dial(t, func(c child) {
				c.started()
				ask(c)
			})
			client.Translate(func(ctx context.Context, _ sandbox.Source) (sandbox.Translation, error) {
				<-ctx.Done()
				return sandbox.Translation{}, ctx.Err()
			})
			_, _ = client.Start(t.Context(), StartBody{}) // the connection may end before it is answered
			<-client.Done()
			client.Close()
			if err := client.Err(); err == nil || !strings.Contains(err.Error(), "translated") {
				t.Errorf("the connection ended with %v, want an error about what is translated", err)
			}
		})
	}
}

// A child that asks and does not read gets the server to hold a few answers, not all.
func TestAChildThatReadsNoTranslationsIsEnded(t *testing.T) {
	const most = TranslationsAtOnce + 1 // one is being written
	called := make(chan struct{}, 10*most)
	client := dial(t, func(c child) {
		c.started()
		for n := range uint32(10 * most) {
			c.send(KindTranslate, n, sandbox.Source{Code: "a"})
			select {
			case <-called:
				time.Sleep(10 * time.Millisecond) // the answer waits to be written now
			case <-time.After(time.Second): // the connection has ended
				return
			}
		}
	})
	answered := 0
	client.Translate(func(context.Context, sandbox.Source) (sandbox.Translation, error) {
		answered++ // the calls follow each other
		called <- struct{}{}
		return sandbox.Translation{Code: strings.Repeat("a", 1<<20)}, nil
	})
	_, _ = client.Start(t.Context(), StartBody{}) // the connection may end before it is answered
	select {
	case <-client.Done():
	case <-time.After(10 * time.Second):
		t.Error("the connection goes on while the child does not read")
	}
	client.Close()
	if err := client.Err(); err == nil || !strings.Contains(err.Error(), "more translated") {
		t.Errorf("the connection ended with %v, want an error about what is translated", err)
	}
	if answered > most {
		t.Errorf("the server made %d answers that the child did not read, want at most %d", answered, most)
	}
}
