package e2b

import (
	"cmp"
	"encoding/base64"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"paddock/internal/envd"
	"paddock/internal/fault"
	"paddock/internal/session"
)

// usualPage and mostPage are how many a page has.
const usualPage, mostPage = 100, 100

// listed is a sandbox in a list.
type listed struct {
	SandboxID   string            `json:"sandboxID"`
	TemplateID  string            `json:"templateID"`
	ClientID    string            `json:"clientID"`
	StartedAt   time.Time         `json:"startedAt"`
	EndAt       time.Time         `json:"endAt"`
	CPUCount    int               `json:"cpuCount"`
	MemoryMB    int64             `json:"memoryMB"`
	DiskSizeMB  int64             `json:"diskSizeMB"`
	Metadata    map[string]string `json:"metadata"`
	State       string            `json:"state"`
	EnvdVersion string            `json:"envdVersion"`
}

// detailed is a sandbox that was asked for.
type detailed struct {
	listed
	Domain         string     `json:"domain"`
	EnvdToken      string     `json:"envdAccessToken"`
	InternetAccess *bool      `json:"allowInternetAccess,omitempty"`
	Lifecycle      lifecycle  `json:"lifecycle"`
	Network        *ruledHost `json:"network,omitempty"`
}

type lifecycle struct {
	OnTimeout  string `json:"onTimeout"`
	AutoResume bool   `json:"autoResume"`
}

type ruledHost struct {
	AllowOut []string `json:"allowOut,omitempty"`
	DenyOut  []string `json:"denyOut,omitempty"`
}

func stateOf(r record) string {
	if r.Paused {
		return "paused"
	}
	return "running"
}

func (s *Server) listed(r record) listed {
	metadata := r.Metadata
	if metadata == nil {
		metadata = map[string]string{}
	}
	return listed{
		r.ID, r.Template, "paddock", r.Started.UTC(), r.End.UTC(), s.config.CPUs, s.config.MemoryBytes >> 20, s.config.DiskBytes >> 20,
		metadata, stateOf(r), envd.Version,
	}
}

func (s *Server) get(r *http.Request, owner session.Owner) (any, int, error) {
	b, err := s.of(owner, r.PathValue("id"))
	if err != nil {
		return nil, 0, err
	}
	one := b.now()
	d := detailed{
		listed: s.listed(one), Domain: s.config.Domain(), EnvdToken: s.envdToken(b.id), InternetAccess: one.InternetAllowed,
		Lifecycle: lifecycle{"kill", one.AutoResume},
	}
	if one.AutoPause {
		d.Lifecycle.OnTimeout = "pause"
	}
	if len(one.Allowed)+len(one.Denied) > 0 {
		d.Network = &ruledHost{one.Allowed, one.Denied}
	}
	return d, http.StatusOK, nil
}

// listSandboxes lists an owner's sandboxes; the older path only those that run.
func (s *Server) listSandboxes(older bool) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		q := r.URL.Query()
		metadata, err := metadataQuery(q.Get("metadata"))
		if err != nil {
			failWith(w, err)
			return
		}
		states := strings.FieldsFunc(strings.Join(q["state"], ","), func(r rune) bool { return r == ',' })
		if older {
			states = []string{"running"}
		}
		after, err := time.Parse(time.RFC3339, q.Get("startedAfter"))
		if q.Get("startedAfter") != "" && err != nil {
			failWith(w, fault.New(fault.Invalid, "startedAfter is not a time of RFC 3339"))
			return
		}
		template := q.Get("template")
		s.page(w, r, func(one record) bool {
			if one.Snapshot || len(states) > 0 && !slices.Contains(states, stateOf(one)) || template != "" && one.Template != template || one.Started.Before(after) {
				return false
			}
			for key, value := range metadata {
				if got, there := one.Metadata[key]; !there || got != value {
					return false
				}
			}
			return true
		}, func(b *sandbox) any { return s.listed(b.now()) })
	}
}

// metadataQuery reads a query whose keys and values were escaped twice.
func metadataQuery(text string) (map[string]string, error) {
	values, err := url.ParseQuery(text)
	if err != nil {
		return nil, fault.New(fault.Invalid, "metadata is not a query: %v", err)
	}
	all := map[string]string{}
	for key := range values {
		k, err1 := url.PathUnescape(key)
		v, err2 := url.PathUnescape(values.Get(key))
		if err := cmp.Or(err1, err2); err != nil {
			return nil, fault.New(fault.Invalid, "metadata is not escaped as a URL: %v", err)
		}
		all[k] = v
	}
	return all, nil
}

// page answers with a page of those of the caller's that are wanted, the newest first.
func (s *Server) page(w http.ResponseWriter, r *http.Request, want func(record) bool, show func(*sandbox) any) {
	owner, err := ownerOf(r)
	if err != nil {
		failWith(w, err)
		return
	}
	q := r.URL.Query()
	limit := usualPage
	if text := q.Get("limit"); text != "" {
		if limit, err = strconv.Atoi(text); err != nil || limit < 1 {
			failWith(w, fault.New(fault.Invalid, "limit is not a number from 1 to %d", mostPage))
			return
		}
		limit = min(limit, mostPage)
	}
	oldest := q.Get("order") == "asc"
	type placed struct {
		b    *sandbox
		sort string
	}
	var all []placed
	for _, b := range s.list() {
		if one := b.now(); b.owner == owner && want(one) {
			all = append(all, placed{b, one.Started.UTC().Format("20060102150405.000000000") + "_" + one.ID})
		}
	}
	slices.SortFunc(all, func(x, y placed) int {
		if oldest {
			x, y = y, x
		}
		return cmp.Compare(y.sort, x.sort)
	})
	if token := q.Get("nextToken"); token != "" {
		last, err := base64.RawURLEncoding.DecodeString(token)
		if err != nil {
			failWith(w, fault.New(fault.Invalid, "nextToken is none that a list gave"))
			return
		}
		all = slices.DeleteFunc(all, func(p placed) bool { return oldest && p.sort <= string(last) || !oldest && p.sort >= string(last) })
	}
	if len(all) > limit {
		all = all[:limit]
		w.Header().Set("X-Next-Token", base64.RawURLEncoding.EncodeToString([]byte(all[limit-1].sort)))
	}
	shown := []any{}
	for _, p := range all {
		shown = append(shown, show(p.b))
	}
	writeJSON(w, http.StatusOK, shown)
}
