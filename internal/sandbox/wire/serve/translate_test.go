package serve

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"

	"paddock/internal/fault"
	"paddock/internal/sandbox"
	"paddock/internal/sandbox/wire"
)

func TestTheServerTranslates(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := &echo{}
		c, s := connected(t, e)
		translated := func(code string) sandbox.Translation {
			t.Helper()
			got, ok := e.loop.Translate(sandbox.Source{Code: code, Name: "x.ts"}, nil)
			if !ok {
				t.Fatalf("%.20q: got no answer", code)
			}
			return got
		}
		message := func(got sandbox.Translation) string {
			t.Helper()
			if got.Error == nil {
				t.Fatalf("got %.20q, want an error", got.Code)
			}
			return got.Error.Message
		}
		if got, want := message(translated("1")), "TypeScript is not available here"; got != want {
			t.Errorf("without a translator: got %q, want %q", got, want)
		}
		c.Translate(func(_ context.Context, s sandbox.Source) (sandbox.Translation, error) {
			switch s.Code {
			case "wrong":
				return sandbox.Translation{Error: &sandbox.ProgramError{Type: "SyntaxError", Message: "no", Line: 7}}, nil
			case "fails":
				return sandbox.Translation{}, fault.New(fault.Unavailable, "no helper").WithCause(errors.New("a secret"))
			case "long":
				return sandbox.Translation{Code: strings.Repeat("a", 41<<20)}, nil
			}
			return sandbox.Translation{Code: "js of " + s.Code, Map: "map of " + s.Name}, nil
		})
		if got, want := translated("a"), (sandbox.Translation{Code: "js of a", Map: "map of x.ts"}); got != want {
			t.Errorf("got %+v, want %+v", got, want)
		}
		wrong := translated("wrong")
		if got, want := message(wrong), "no"; got != want {
			t.Errorf("a mistake: got %q, want %q", got, want)
		}
		if got, want := wrong.Error.Line, 7; got != want {
			t.Errorf("a mistake: got line %d, want %d", got, want)
		}
		if got, want := message(translated("fails")), "TypeScript cannot be translated now: no helper"; got != want {
			t.Errorf("a translator that fails: got %q, want %q", got, want)
		}
		if got, want := message(translated("long")), "the JavaScript of the program is too long"; got != want {
			t.Errorf("a long answer: got %q, want %q", got, want)
		}
		if got, want := message(translated(strings.Repeat("a", sandbox.MaxSource+1))), "the program is too long: it has more than 8 MiB"; got != want {
			t.Errorf("a long program: got %q, want %q", got, want)
		}
		c.Close()
		s.wantEnd(t, "")
	})
}

// A child has two translations at a time; who gives one up leaves its place until the
// server has answered.
func TestTranslationsAreFewAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := &echo{}
		c, s := connected(t, e)
		release := make(chan struct{})
		going := 0
		most := 0
		c.Translate(func(_ context.Context, s sandbox.Source) (sandbox.Translation, error) {
			going++ // one after the other: synctest.Wait lies between them
			most = max(most, going)
			<-release
			going--
			return sandbox.Translation{Code: s.Code}, nil
		})
		stop := make(chan struct{})
		left := make(chan bool, 1)
		go func() {
			_, ok := e.loop.Translate(sandbox.Source{Code: "given up"}, stop)
			left <- ok
		}()
		synctest.Wait()
		close(stop)
		if ok := <-left; ok {
			t.Error("a translation that was given up has an answer")
		}
		answers := make(chan string, 3)
		for _, code := range []string{"a", "b", "c"} {
			go func() {
				got, _ := e.loop.Translate(sandbox.Source{Code: code}, nil)
				answers <- got.Code
			}()
			synctest.Wait()
		}
		for range 4 {
			release <- struct{}{}
			synctest.Wait()
		}
		seen := map[string]bool{}
		for range 3 {
			seen[<-answers] = true
		}
		if len(seen) != 3 {
			t.Errorf("got the answers %v, want those to a, b and c", seen)
		}
		if most != wire.TranslationsAtOnce {
			t.Errorf("%d were translated at once, want %d", most, wire.TranslationsAtOnce)
		}
		c.Close()
		s.wantEnd(t, "")
	})
}

// What is asked before a machine is saved is not answered after that.
func TestATranslationIsCutOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := &echo{}
		c, s := connected(t, e)
		c.Translate(func(ctx context.Context, _ sandbox.Source) (sandbox.Translation, error) {
			<-ctx.Done()
			return sandbox.Translation{}, ctx.Err()
		})
		answer := make(chan sandbox.Translation, 1)
		go func() {
			got, _ := e.loop.Translate(sandbox.Source{Code: "a"}, nil)
			answer <- got
		}()
		synctest.Wait()
		e.loop.CutTranslations()
		if got := <-answer; got.Error == nil || !strings.Contains(got.Error.Message, "run it again") {
			t.Errorf("got %+v, want an error that says to run it again", got)
		}
		c.Close()
		s.wantEnd(t, "")
	})
}
