package principals

import (
	"net/http"
	"net/http/httptest"
	"testing"
)

// paddocktestServer serves at 127.0.0.1 until the test ends.
func paddocktestServer(t *testing.T, h http.Handler) string {
	s := httptest.NewServer(h)
	t.Cleanup(func() { s.CloseClientConnections(); s.Close() })
	return s.URL
}
