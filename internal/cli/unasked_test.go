package cli

import (
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// hush is a value that no log may have.
const hush = "hush-hush-value"

// A host that gives more than it says it does may give a secret back in that.
func TestWhatHostsSendUnaskedIsNotLogged(t *testing.T) {
	to, err := os.Create(filepath.Join(t.TempDir(), "log"))
	if err != nil {
		t.Fatal(err)
	}
	defer to.Close()
	log.SetOutput(to)
	if code := Main(t.Context(), []string{"version"}, strings.NewReader(""), io.Discard, io.Discard); code != 0 {
		t.Fatal("paddock version ends with", code)
	}
	gone := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer close(gone)
		c, b, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer c.Close()
		fmt.Fprintf(b, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}%s", hush)
		b.Flush()
		_ = c.SetReadDeadline(time.Now().Add(10 * time.Second))
		_, _ = b.ReadByte() // ends when the client has read what it did not ask for
	}))
	defer server.Close()
	transport := &http.Transport{}
	resp, err := (&http.Client{Transport: transport}).Get(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	_, _ = io.ReadAll(resp.Body)
	resp.Body.Close()
	<-gone
	if text, err := os.ReadFile(to.Name()); err != nil {
		t.Errorf("the log: got error %v, want none: %s", err, text)
	} else if strings.Contains(string(text), hush) {
		t.Errorf("the log: got %q, want no %q in it", string(text), hush)
	}
}
