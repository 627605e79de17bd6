package e2b

import (
	"crypto/rand"
	"maps"
	"net/http"
	"net/netip"
	"regexp"
	"slices"
	"strings"
	"time"

	"paddock/internal/envd"
	"paddock/internal/fault"
	"paddock/internal/session"
)

// keepPaused is for how long a session is kept that no client uses: a paused sandbox, or a
// snapshot.
const keepPaused = 30 * 24 * time.Hour

// user is what clients' users are called.
const user = "user"

// How long a sandbox runs where the client does not say: of the older path and the newer.
const defaultTimeout, defaultTimeoutV2 = 15, 300

type createCall struct {
	TemplateID      string            `json:"templateID"`
	Timeout         *int64            `json:"timeout"`
	Metadata        map[string]string `json:"metadata"`
	EnvVars         map[string]string `json:"envVars"`
	AutoPause       bool              `json:"autoPause"`
	AutoPauseMemory *bool             `json:"autoPauseMemory"`
	AutoResume      *struct {
		Enabled bool `json:"enabled"`
	} `json:"autoResume"`
	Internet     *bool         `json:"allow_internet_access"`
	Network      *networkRules `json:"network"`
	MCP          any           `json:"mcp"`
	IAM          any           `json:"iam"`
	VolumeMounts []any         `json:"volumeMounts"`
}

type networkRules struct {
	AllowOut           []string       `json:"allowOut"`
	DenyOut            []string       `json:"denyOut"`
	Rules              map[string]any `json:"rules"`
	EgressProxy        any            `json:"egressProxy"`
	AllowPublicTraffic *bool          `json:"allowPublicTraffic"`
	MaskRequestHost    string         `json:"maskRequestHost"`
}

// made is a sandbox as its maker is told of it.
type made struct {
	SandboxID    string `json:"sandboxID"`
	TemplateID   string `json:"templateID"`
	ClientID     string `json:"clientID"`
	Alias        string `json:"alias,omitempty"`
	EnvdVersion  string `json:"envdVersion"`
	EnvdToken    string `json:"envdAccessToken"`
	TrafficToken string `json:"trafficAccessToken"`
	Domain       string `json:"domain"`
}

func (s *Server) told(b *sandbox) made {
	r := b.now()
	return made{r.ID, r.Template, "paddock", "", envd.Version, s.envdToken(r.ID), s.trafficToken(r.ID), s.config.Domain()}
}

func (s *Server) create(r *http.Request, owner session.Owner) (any, int, error) {
	var q createCall
	if err := read(r, &q); err != nil {
		return nil, 0, err
	}
	seconds := int64(defaultTimeout)
	if strings.HasPrefix(r.URL.Path, "/v2/") {
		seconds = defaultTimeoutV2
	}
	if q.Timeout != nil {
		seconds = *q.Timeout
	}
	timeout, err := s.timeout(seconds)
	if err == nil {
		err = q.check()
	}
	if err != nil {
		return nil, 0, err
	}
	now := time.Now()
	one := record{
		ID: newID(), Owner: owner, Template: q.TemplateID, Metadata: q.Metadata, Env: q.EnvVars, Started: now, End: now.Add(timeout), Timeout: timeout,
		AutoPause: q.AutoPause, AutoPauseCold: q.AutoPauseMemory != nil && !*q.AutoPauseMemory, AutoResume: q.AutoResume != nil && q.AutoResume.Enabled,
		InternetAllowed: q.Internet,
	}
	rules, err := q.rules()
	if err != nil {
		return nil, 0, err
	}
	if q.Network != nil {
		one.Allowed, one.Denied = q.Network.AllowOut, q.Network.DenyOut
	}
	if one.Session, err = s.newSession(r, owner, q.TemplateID, rules); err != nil {
		return nil, 0, err
	}
	b, err := s.start(r, one)
	if err != nil {
		return nil, 0, err
	}
	return s.told(b), http.StatusCreated, nil
}

// start writes a sandbox down whose session was made, and boots it; after an error there is
// nothing of it.
func (s *Server) start(r *http.Request, one record) (*sandbox, error) {
	b, err := s.add(one)
	if err == nil {
		err = b.boot(r.Context())
	}
	if err == nil {
		return b, nil
	}
	left := error(nil)
	if b != nil {
		left = b.destroy(r.Context())
	} else {
		left = s.config.Sessions.Destroy(r.Context(), one.Owner, one.Session)
	}
	if left != nil {
		s.config.Log.Warn("a sandbox that could not be started is left", "sandbox", one.ID, "cause", fault.CauseOf(left))
	}
	return nil, err
}

// newID makes an id that cannot be guessed: 130 random bits.
func newID() string { return strings.ToLower(rand.Text()) }

// newSession makes a sandbox's session: a new one of a template, or a fork of a snapshot.
func (s *Server) newSession(r *http.Request, owner session.Owner, template string, rules *[]string) (session.ID, error) {
	if snap := s.snapshotOf(owner, template); snap != nil {
		forks, err := s.config.Sessions.Fork(r.Context(), owner, snap.session, "", 1)
		if err != nil {
			return "", err
		}
		return forks[0].ID, nil
	}
	image, known := s.config.Templates[template]
	if !known {
		return "", fault.New(fault.NotFound, "template '%s' not found", template).WithHint("the templates are %s; e2b.templates in the configuration names more",
			strings.Join(slices.Sorted(maps.Keys(s.config.Templates)), ", "))
	}
	i, err := s.config.Sessions.Create(r.Context(), owner, "", session.Settings{
		Isolation: "linux", Name: "E2B " + template, TTL: keepPaused, Network: rules, Machine: &session.Machine{Image: image, User: user},
	})
	return i.ID, err
}

var metadataKey = regexp.MustCompile(`^[^\x00]{1,256}$`)

// check refuses what is not offered.
func (q *createCall) check() error {
	for key := range q.Metadata {
		if !metadataKey.MatchString(key) {
			return fault.New(fault.Invalid, "a key of metadata has 1 to 256 characters")
		}
	}
	switch {
	case q.TemplateID == "":
		return fault.New(fault.Invalid, "templateID is missing").WithHint("\"base\" is there")
	case q.IAM != nil:
		return fault.New(fault.Invalid, "paddock has no iam tokens").WithHint("the operator sets secrets with paddock secret")
	case len(q.VolumeMounts) > 0:
		return fault.New(fault.Invalid, "paddock has no volumes for E2B's clients").WithHint("write files into the sandbox, or make a snapshot")
	case q.AutoResume != nil && q.AutoResume.Enabled && !q.AutoPause:
		return fault.New(fault.Invalid, "autoResume needs autoPause")
	}
	return nil
}

// allTraffic is every address there is, as clients write it.
const allTraffic = "0.0.0.0/0"

// rules narrow the operator's rules for the network; nil: they do not.
func (q *createCall) rules() (*[]string, error) {
	if q.Internet != nil && !*q.Internet {
		return &[]string{}, nil
	}
	if q.Network == nil {
		return nil, nil
	}
	return q.Network.hosts()
}

func (n *networkRules) hosts() (*[]string, error) {
	switch {
	case len(n.Rules) > 0:
		return nil, fault.New(fault.Invalid, "network.rules are not offered").WithHint("the operator gives secrets to hosts with paddock secret set --host")
	case n.EgressProxy != nil:
		return nil, fault.New(fault.Invalid, "network.egressProxy is not offered").WithHint("all traffic of a sandbox goes through paddock's own proxy")
	case n.MaskRequestHost != "":
		return nil, fault.New(fault.Invalid, "network.maskRequestHost is not offered").WithHint("the program is given the host that the client sent")
	}
	for _, host := range slices.Concat(n.AllowOut, n.DenyOut) {
		_, cidr := netip.ParsePrefix(host)
		_, addr := netip.ParseAddr(host)
		if host != allTraffic && (cidr == nil || addr == nil) {
			return nil, fault.New(fault.Invalid, "rules for the addresses %s are not offered", host).WithHint("name hosts in allowOut, and 0.0.0.0/0 in denyOut")
		}
	}
	switch {
	case len(n.DenyOut) == 0:
		return nil, nil
	case !slices.Contains(n.DenyOut, allTraffic):
		return nil, fault.New(fault.Invalid, "single hosts cannot be denied").WithHint("deny 0.0.0.0/0, and name those in allowOut that are needed")
	case slices.Contains(n.AllowOut, allTraffic):
		return nil, nil
	}
	hosts := append([]string{}, n.AllowOut...)
	return &hosts, nil
}

// timeout checks how long a sandbox is to run.
func (s *Server) timeout(seconds int64) (time.Duration, error) {
	most := int64(s.config.MaxTimeout / time.Second)
	if seconds < 0 || seconds > most {
		return 0, fault.New(fault.Invalid, "Timeout cannot be greater than %d hours", most/3600).WithHint("it has 0 to %d seconds", most)
	}
	return time.Duration(seconds) * time.Second, nil
}

func (s *Server) kill(r *http.Request, owner session.Owner) (any, int, error) {
	b, err := s.of(owner, r.PathValue("id"))
	if err == nil {
		err = b.destroy(r.Context())
	}
	return nil, http.StatusNoContent, err
}

type timeoutCall struct {
	Timeout  *int64 `json:"timeout"`
	Duration *int64 `json:"duration"`
	Memory   *bool  `json:"memory"`
	Count    *int   `json:"count"`
	Name     string `json:"name"`
}

// called reads a call about a sandbox, with its timeout; without one it is as many seconds as
// usual.
func (s *Server) called(r *http.Request, owner session.Owner, usual int64) (b *sandbox, q timeoutCall, timeout time.Duration, err error) {
	if err = read(r, &q); err == nil {
		b, err = s.of(owner, r.PathValue("id"))
	}
	if err != nil {
		return nil, q, 0, err
	}
	if q.Timeout != nil {
		usual = *q.Timeout
	}
	timeout, err = s.timeout(usual)
	return b, q, timeout, err
}

func (s *Server) connect(r *http.Request, owner session.Owner) (any, int, error) {
	b, _, timeout, err := s.called(r, owner, defaultTimeoutV2)
	if err != nil {
		return nil, 0, err
	}
	resumed, err := b.resume(r.Context(), timeout)
	if err != nil {
		return nil, 0, err
	}
	status := http.StatusOK
	if resumed || strings.HasSuffix(r.URL.Path, "/resume") {
		status = http.StatusCreated
	}
	return s.told(b), status, nil
}

func (s *Server) setTimeout(r *http.Request, owner session.Owner) (any, int, error) {
	b, q, timeout, err := s.called(r, owner, 0)
	switch {
	case err != nil:
	case q.Timeout == nil:
		err = fault.New(fault.Invalid, "timeout is missing")
	case b.now().Paused:
		err = errNoSandbox(b.id)
	default:
		err = b.change(func(r *record) { r.Timeout, r.End = timeout, time.Now().Add(timeout) })
	}
	return nil, http.StatusNoContent, err
}

// refresh is setTimeout of old clients, which only extends.
func (s *Server) refresh(r *http.Request, owner session.Owner) (any, int, error) {
	b, q, _, err := s.called(r, owner, 0)
	if err != nil {
		return nil, 0, err
	}
	seconds := int64(defaultTimeout)
	if q.Duration != nil {
		seconds = *q.Duration
	}
	timeout, err := s.timeout(seconds)
	if err == nil {
		end := time.Now().Add(timeout)
		err = b.change(func(r *record) {
			if end.After(r.End) {
				r.End = end
			}
		})
	}
	return nil, http.StatusNoContent, err
}

func (s *Server) pause(r *http.Request, owner session.Owner) (any, int, error) {
	b, q, _, err := s.called(r, owner, 0)
	if err == nil {
		err = b.pauseNow(r.Context(), q.Memory != nil && !*q.Memory)
	}
	return nil, http.StatusNoContent, err
}

func (s *Server) logs(r *http.Request, owner session.Owner) (any, int, error) {
	_, err := s.of(owner, r.PathValue("id"))
	return map[string]any{"logs": []any{}, "logEntries": []any{}}, http.StatusOK, err
}

func (s *Server) network(r *http.Request, owner session.Owner) (any, int, error) {
	if _, err := s.of(owner, r.PathValue("id")); err != nil {
		return nil, 0, err
	}
	return nil, 0, fault.New(fault.Unsupported, "the rules of a sandbox's network are set when it is created").
		WithHint("create another one with network or allowInternetAccess; the operator's network.allow changes at once for all")
}
