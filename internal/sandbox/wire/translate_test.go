package wire

import (
	"context"
	"strings"
	"testing"

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
