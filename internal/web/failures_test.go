package web

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"paddock/internal/auth"
	"paddock/internal/fault"
)

// from sends a request to the files, as it comes from an address, and gives
// its answer.
func (s *Server) from(t *testing.T, address, authorization string) *httptest.ResponseRecorder {
	t.Helper()
	s.listensAt(80)
	r := httptest.NewRequestWithContext(t.Context(), "GET", "http://localhost/v1/a", nil)
	r.RemoteAddr = address
	if authorization != "" {
		r.Header.Set("Authorization", authorization)
	}
	w := httptest.NewRecorder()
	s.ServeHTTP(w, r)
	return w
}

// failuresFunc is an Observer of failures alone.
type failuresFunc func(Failures)

func (failuresFunc) RequestAnswered(context.Context, Answered)       {}
func (f failuresFunc) RequestsFailed(_ context.Context, of Failures) { f(of) }

func TestFailuresOfAnAddressAreToldTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		var told []string
		s := create(t, Config{Observer: failuresFunc(func(f Failures) {
			mu.Lock()
			defer mu.Unlock()
			told = append(told, fmt.Sprint(f.From, " ", f.Count, " ", fault.KindOf(f.Last)))
		})})
		ctx, end := context.WithCancel(t.Context())
		var telling sync.WaitGroup
		telling.Go(func() { s.tellFailures(ctx) })
		want := func(all ...string) {
			t.Helper()
			synctest.Wait()
			mu.Lock()
			defer mu.Unlock()
			if got := strings.Join(told, ", "); got != strings.Join(all, ", ") {
				t.Errorf("told was %s, want %s", got, strings.Join(all, ", "))
			}
			told = nil
		}
		for range 100 {
			s.from(t, "127.0.0.1:7", "Bearer wrong")
		}
		s.from(t, "127.0.0.2:7", "")
		want("127.0.0.1 1 denied", "127.0.0.2 1 denied")
		time.Sleep(failurePeriod + failureSweep)
		s.from(t, "127.0.0.1:7", "")
		want("127.0.0.1 99 denied")
		time.Sleep(failurePeriod + failureSweep)
		want("127.0.0.1 1 denied")
		time.Sleep(failurePeriod + failureSweep)
		synctest.Wait()
		if n := len(s.failures.by); n != 0 {
			t.Errorf("%d addresses are remembered", n)
		}
		s.from(t, "127.0.0.2:7", "")
		s.from(t, "127.0.0.2:7", "")
		want("127.0.0.2 1 denied")
		end()
		telling.Wait()
		want("127.0.0.2 1 denied")
	})
}

func TestWhoGuessesIsToldToWaitAndNobodyElse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := create(t, Config{Verifier: auth.Static(token, &auth.Principal{ID: "token:1", Name: "ann"})})
		for range maxFailures {
			if got := s.from(t, "127.0.0.1:7", "Bearer wrong"); got.Code != http.StatusUnauthorized {
				t.Fatalf("got %d", got.Code)
			}
		}
		time.Sleep(failurePeriod / 2)
		for _, authorization := range []string{"", "Bearer wrong"} {
			got := s.from(t, "127.0.0.1:8", authorization)
			if got.Code != http.StatusTooManyRequests {
				t.Errorf("got.Code = %d, want %d", got.Code, http.StatusTooManyRequests)
			} else if got.Header().Get("Retry-After") != "30" {
				t.Errorf(`header Retry-After = %q, want "30"`, got.Header().Get("Retry-After"))
			}
		}
		if got := s.from(t, "127.0.0.1:8", "Bearer "+token); got.Code != http.StatusOK {
			t.Errorf("somebody with a token at the same address: %d", got.Code)
		}
		if got := s.from(t, "127.0.0.2:7", "Bearer wrong"); got.Code != http.StatusUnauthorized {
			t.Errorf("another address: %d", got.Code)
		}
		time.Sleep(failurePeriod / 2)
		if got := s.from(t, "127.0.0.1:7", "Bearer wrong"); got.Code != http.StatusUnauthorized {
			t.Errorf("after a rest: %d", got.Code)
		}
	})
}

func TestOnlySoManyAddressesAreRemembered(t *testing.T) {
	f, now, no := &failures{}, time.Now(), fault.New(fault.Denied, "no")
	told := 0
	for k := range 3 * maxFailing {
		told += f.add(netip.AddrFrom4([4]byte{10, 1, byte(k >> 8), byte(k)}), no, now).Count
	}
	if len(f.by) > maxFailing+1 {
		t.Errorf("len(f.by) = %d, want at most %d", len(f.by), maxFailing+1)
	} else if told > maxFailing+1 {
		t.Errorf("told = %d, want at most %d", told, maxFailing+1)
	}
	stranger := netip.MustParseAddr("192.0.2.1")
	if f.refuse(stranger, now) == nil {
		t.Error("what there was no room for does not count together")
	}
	f.due(now.Add(failurePeriod), false)
	f.due(now.Add(2*failurePeriod), false)
	if err := f.refuse(stranger, now.Add(failurePeriod)); err != nil {
		t.Errorf("after a rest: got error %v, want none", err)
	} else if len(f.by) != 0 {
		t.Errorf("after a rest: len(f.by) = %d, want none", len(f.by))
	}
	for k := range maxFailures {
		f.add(netip.MustParseAddr(fmt.Sprintf("2001:db8::%x", k+1)), no, now)
	}
	if f.refuse(netip.MustParseAddr("2001:db8::ffff"), now) == nil {
		t.Error("another address of the network of 64 bits: got no error, want one")
	}
	if err := f.refuse(netip.MustParseAddr("2001:db8:0:1::1"), now); err != nil {
		t.Errorf("an address of another network: got error %v, want none", err)
	}
}

func TestNobodyIsLockedOutBecauseTokensCannotBeChecked(t *testing.T) {
	f := &failures{}
	for range 2 * maxFailures {
		f.add(netip.Addr{}, fault.New(fault.Unavailable, "the issuer does not answer"), time.Now())
	}
	if err := f.refuse(netip.Addr{}, time.Now()); err != nil {
		t.Error(err)
	}
}
