package app

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"
)

// probeTime bounds each question to a server of this machine.
const probeTime = time.Second

// RefusesToken reports whether a paddock serve answers at the endpoint and refuses
// the token. Only this machine is asked, and nothing but a paddock gets the
// token; a server that does not answer in time refuses nothing.
func RefusesToken(ctx context.Context, endpoint, token string) bool {
	u, err := url.Parse(endpoint)
	if err != nil || !IsLoopback(u) {
		return false
	}
	health := *u
	health.Path = "/healthz"
	status, body := ask(ctx, http.MethodGet, health.String(), "", "")
	var said struct {
		Status string `json:"status"`
	}
	if status != http.StatusOK || json.Unmarshal(body, &said) != nil || said.Status != "ok" {
		return false
	}
	status, _ = ask(ctx, http.MethodPost, endpoint, token, `{"jsonrpc":"2.0","id":1,"method":"ping"}`)
	return status == http.StatusUnauthorized || status == http.StatusForbidden
}

// ask sends one request and gives the answer; status 0: there is none. It
// follows no redirect and uses no proxy.
func ask(ctx context.Context, method, url, token, body string) (status int, answer []byte) {
	ctx, cancel := context.WithTimeout(ctx, probeTime)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, method, url, strings.NewReader(body))
	if err != nil {
		return 0, nil
	}
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Accept", "application/json, text/event-stream")
	client := http.Client{
		Transport:     &http.Transport{DisableKeepAlives: true},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	res, err := client.Do(r)
	if err != nil {
		return 0, nil
	}
	defer res.Body.Close()
	answer, _ = io.ReadAll(io.LimitReader(res.Body, 1<<10)) // the status alone says enough
	return res.StatusCode, answer
}
