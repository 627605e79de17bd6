package upstream

import (
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"

	"paddock/internal/membudget"
)

func TestLargeAnswersTakeTheirTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const limit = 1 << 20
		b := membudget.New(6*limit, 6*limit) // for two answers
		read := func(size int) (ended chan error, end func()) {
			ctx, end := b.Scope(t.Context(), "ann")
			ended = make(chan error, 1)
			go func() {
				_, err := io.Copy(io.Discard, weighed(ctx, strings.NewReader(strings.Repeat("x", size)), limit))
				ended <- err
			}()
			synctest.Wait()
			return ended, end
		}
		first, endFirst := read(limit)
		second, endSecond := read(limit)
		third, endThird := read(limit)
		small, endSmall := read(lightBytes)
		for name, ended := range map[string]chan error{"the first": first, "the second": second, "a small one": small} {
			select {
			case err := <-ended:
				if err != nil {
					t.Errorf("%s: %v", name, err)
				}
			default:
				t.Errorf("%s has not been read", name)
			}
		}
		select {
		case err := <-third:
			t.Fatalf("the third did not wait: %v", err)
		default:
		}
		endFirst()
		if err := <-third; err != nil {
			t.Errorf("the third: %v", err)
		}
		endSecond()
		endThird()
		endSmall()
		if held := b.Held(); held != 0 {
			t.Errorf("%d bytes are held", held)
		}
	})
}

func TestALargeAnswerThatThereIsNoMemoryForIsAProblem(t *testing.T) {
	b := membudget.New(100, 100)
	ctx, end := b.Scope(t.Context(), "ann")
	defer end()
	resp := &http.Response{Body: io.NopCloser(strings.NewReader(strings.Repeat("x", 2*lightBytes)))}
	if _, err := readMessage(ctx, resp, 1<<20); err == nil {
		t.Error("got no error, want one")
	} else if got := asProblem(err, false).reason; got != TooLarge {
		t.Errorf("got an error of the reason %q, want %q: %v", got, TooLarge, err)
	}
}
