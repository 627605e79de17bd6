package web

import "net/http"

// health is what /healthz and /readyz answer.
type health struct {
	Status  string   `json:"status"`
	Reasons []string `json:"reasons,omitempty"`
}

// healthz tells that the process answers at all.
func (s *Server) healthz(w http.ResponseWriter, r *http.Request) {
	writeJSON(w, r, http.StatusOK, health{Status: "ok"})
}

// readyz reports whether new requests should be sent here.
func (s *Server) readyz(w http.ResponseWriter, r *http.Request) {
	var reasons []string
	if s.draining.Err() != nil {
		reasons = append(reasons, "the server is ending")
	}
	if s.config.Ready != nil {
		reasons = append(reasons, s.config.Ready(r.Context())...)
	}
	if len(reasons) > 0 {
		writeJSON(w, r, http.StatusServiceUnavailable, health{"not ready", reasons})
		return
	}
	writeJSON(w, r, http.StatusOK, health{Status: "ready"})
}
