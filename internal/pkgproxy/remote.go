package pkgproxy

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"deps.dev/util/semver"

	"paddock/internal/egress"
	"paddock/internal/fault"
)

const (
	// maxPage bounds an index's answer, in bytes: the largest of npm's have 40 MB.
	maxPage = 128 << 20
	// pageMemory is what reading one takes in memory.
	pageMemory = 16 << 20
	// pageTime bounds the asking for one.
	pageTime = time.Minute
	// stale is for how long an answer is used where its index does not answer.
	stale = 24 * time.Hour
)

// remote is an index that is reached over HTTP.
type remote struct {
	p     *Packages
	index Index
	base  *url.URL // ends in a slash
	pages *http.Client
	files *http.Client
	idle  []*egress.Transport
}

// newRemote makes one, whose URL must be http or https and hold no user.
func (p *Packages) newRemote(index Index) (*remote, error) {
	base, err := url.Parse(index.URL)
	if err != nil || base.Scheme != "http" && base.Scheme != "https" || base.Host == "" || base.User != nil || base.RawQuery != "" || base.Fragment != "" {
		return nil, fault.New(fault.Invalid, "an index of packages is not a URL of http or https, and no absolute path of a folder").
			WithHint("write credentials beside the URL, not in it")
	}
	base.Path = strings.TrimSuffix(base.Path, "/") + "/"
	base.RawPath = ""
	host, err := egress.Host(base.Hostname())
	if err != nil {
		return nil, err
	}
	port := base.Port()
	if port == "" {
		port = map[string]string{"http": "80", "https": "443"}[base.Scheme]
	}
	if strings.Contains(host, ":") {
		host = "[" + host + "]"
	}
	r := &remote{p: p, index: index, base: base}
	own := host + ":" + port + "!private" // it was named by whoever runs paddock
	if r.pages, err = r.client(r.sameOrigin, own); err != nil {
		return nil, err
	}
	r.files, err = r.client(r.maybeElsewhere, append([]string{own, "*"}, index.Files...)...)
	return r, err
}

func (r *remote) client(check func(*http.Request, []*http.Request) error, rules ...string) (*http.Client, error) {
	policy, err := egress.Parse(rules, egress.Rights{All: true, Private: true})
	if err != nil {
		return nil, err
	}
	t := egress.NewTransport(policy, egress.Options{Resolver: r.p.config.Resolver, TLS: r.p.config.TLS})
	r.idle = append(r.idle, t)
	return &http.Client{Transport: t, CheckRedirect: check}, nil
}

func (r *remote) close() {
	for _, t := range r.idle {
		t.CloseIdleConnections()
	}
}

// own tells whether a URL is of the index's origin.
func (r *remote) own(u *url.URL) bool { return u.Scheme == r.base.Scheme && u.Host == r.base.Host }

// sameOrigin lets an index's answers come from the index alone: they say what files
// have to be.
func (r *remote) sameOrigin(next *http.Request, via []*http.Request) error {
	if !r.own(next.URL) {
		return fault.New(fault.Denied, "the index of packages redirects to another host").WithHint("configure the URL that it redirects to, if that is meant")
	}
	return r.credentials(next)
}

// maybeElsewhere lets files come from anywhere, without credentials.
func (r *remote) maybeElsewhere(next *http.Request, via []*http.Request) error {
	next.Header.Del("Authorization")
	if r.own(next.URL) && r.own(via[0].URL) {
		return r.credentials(next)
	}
	return nil
}

func (r *remote) credentials(req *http.Request) error {
	switch {
	case !r.own(req.URL):
	case r.index.Token != "":
		req.Header.Set("Authorization", "Bearer "+r.index.Token)
	case r.index.User != "" || r.index.Password != "":
		req.SetBasicAuth(r.index.User, r.index.Password)
	}
	return nil
}

// request makes one to a URL, with credentials where it is the index's own.
func (r *remote) request(ctx context.Context, u *url.URL) (*http.Request, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), nil)
	if err != nil {
		return nil, err
	}
	req.Header.Set("User-Agent", "paddock")
	return req, r.credentials(req)
}

// reading reads an index's answer as it comes, and writes what of it is kept.
type reading struct {
	system semver.System
	write  func(kind string, body io.Reader, out *pageWriter) (pageHead, error)
}

// page gives what the index answers at a path below it: from the cache where that is
// young enough, or where the index says that it has not changed, or does not answer. The
// caller closes it.
func (r *remote) page(ctx context.Context, path, accept string, read reading) (*page, error) {
	u, err := r.base.Parse(path)
	if err != nil || !r.own(u) {
		return nil, fault.New(fault.Invalid, "%.100q is not a name of a package", path)
	}
	key := pageKey(accept, u.String())
	kept := r.p.store.openPage(key)
	if r.fresh(kept) {
		return kept.found()
	}
	kept.close()
	release, err := r.p.reserve(ctx, pageMemory)
	if err != nil {
		return nil, err
	}
	defer release()
	err = r.p.store.together(ctx, key, func(ctx context.Context) error { return r.renew(ctx, u, key, accept, read) })
	if err != nil {
		return nil, err
	}
	if kept = r.p.store.openPage(key); kept == nil {
		return nil, errAnotherPage
	}
	return kept.found()
}

func (r *remote) fresh(p *page) bool {
	if p == nil {
		return false
	}
	age := r.p.now().Sub(p.fetched)
	return age >= 0 && age < r.p.config.Fresh
}

// renew sees that the cache has a page that may be used.
func (r *remote) renew(ctx context.Context, u *url.URL, key, accept string, read reading) error {
	kept := r.p.store.openPage(key)
	defer kept.close()
	if r.fresh(kept) {
		return nil
	}
	err := r.ask(ctx, u, key, accept, kept, read)
	if err != nil && kept != nil && !kept.Missing && r.p.now().Sub(kept.fetched) < stale && fault.KindOf(err) == fault.Unavailable && ctx.Err() == nil {
		return nil
	}
	return err
}

// ask fetches a page again.
func (r *remote) ask(ctx context.Context, u *url.URL, key, accept string, kept *page, read reading) error {
	ctx, cancel := context.WithTimeout(ctx, pageTime)
	defer cancel()
	req, err := r.request(ctx, u)
	if err != nil {
		return err
	}
	req.Header.Set("Accept", accept)
	if kept != nil && kept.ETag != "" {
		req.Header.Set("If-None-Match", kept.ETag)
	} else if kept != nil && kept.Modified != "" {
		req.Header.Set("If-Modified-Since", kept.Modified)
	}
	resp, err := r.pages.Do(req)
	if err != nil {
		return r.explain(ctx, err)
	}
	defer resp.Body.Close()
	keep := func(write func(*pageWriter) (pageHead, error)) error {
		return r.p.store.keepPage(key, read.system, r.p.now(), write)
	}
	switch {
	case resp.StatusCode == http.StatusNotModified && kept != nil:
		return r.p.store.confirm(key, r.p.now())
	case resp.StatusCode == http.StatusNotFound || resp.StatusCode == http.StatusGone:
		return keep(func(*pageWriter) (pageHead, error) { return pageHead{Missing: true}, nil })
	case resp.StatusCode != http.StatusOK:
		return errStatus(resp.StatusCode)
	}
	body := &transfer{ReadCloser: resp.Body, cancel: cancel, explain: func(err error) error { return r.explain(ctx, err) }}
	return keep(func(out *pageWriter) (pageHead, error) {
		head, err := read.write(resp.Header.Get("Content-Type"), &window{Reader: body, end: maxPage}, out)
		head.ETag, head.Modified = headerText(resp, "ETag"), headerText(resp, "Last-Modified")
		return head, err
	})
}

// headerText is a header that is kept; a long one is not.
func headerText(resp *http.Response, name string) string {
	if text := resp.Header.Get(name); len(text) <= maxURL {
		return text
	}
	return ""
}

// found is the page, or a fault.NotFound where the index has none.
func (p *page) found() (*page, error) {
	if p.Missing {
		p.close()
		return nil, fault.New(fault.NotFound, "no index has such a package").WithHint("check how it is written")
	}
	return p, nil
}

// fetch opens a file, whose URL is of http or https, and no weaker than the index's.
func (r *remote) fetch(ctx context.Context, u *url.URL) (io.ReadCloser, error) {
	if u.Scheme != "https" && (u.Scheme != "http" || r.base.Scheme == "https") || u.User != nil {
		return nil, fault.New(fault.Denied, "the index of packages names a file at a URL that is not its kind")
	}
	ctx, cancel := context.WithTimeout(ctx, defaultTransfer)
	req, err := r.request(ctx, u)
	if err == nil {
		var resp *http.Response
		if resp, err = r.files.Do(req); err == nil {
			if resp.StatusCode == http.StatusOK {
				return &transfer{resp.Body, cancel, func(err error) error { return r.explain(ctx, err) }}, nil
			}
			resp.Body.Close()
			err = errStatus(resp.StatusCode)
		} else if fault.KindOf(err) == fault.Denied {
			err = fault.New(fault.Denied, "the index of packages names a file at a host from which none is taken").
				WithHint("the operator can allow it, in the index's files; its log says which host it is").WithCause(err)
		}
	}
	err = r.explain(ctx, err)
	cancel()
	return nil, err
}

// transfer is a body with a time of its own.
type transfer struct {
	io.ReadCloser
	cancel  context.CancelFunc
	explain func(error) error
}

func (t *transfer) Read(b []byte) (int, error) {
	n, err := t.ReadCloser.Read(b)
	if err != nil && !errors.Is(err, io.EOF) {
		err = t.explain(err)
	}
	return n, err
}

func (t *transfer) Close() error {
	defer t.cancel()
	return t.ReadCloser.Close()
}

// explain makes a fault of what kept an index from answering. Where it is stays in the
// cause: guests need not know.
func (r *remote) explain(ctx context.Context, err error) error {
	var known *fault.Error
	if err == nil || errors.As(err, &known) && known.Kind != fault.Unavailable || errors.Is(ctx.Err(), context.Canceled) {
		if known != nil {
			return known
		}
		return err
	}
	if failed := (*url.Error)(nil); errors.As(err, &failed) { // what signs a URL is in its query
		failed.URL, _, _ = strings.Cut(failed.URL, "?")
	}
	return errIndex("it cannot be reached").WithCause(fmt.Errorf("asking an index of packages: %w", err))
}

func errIndex(why string) *fault.Error {
	return fault.New(fault.Unavailable, "the index of packages does not answer: %s", why).WithHint("try again later; the operator finds more in its log")
}

func errStatus(status int) error {
	switch status {
	case http.StatusUnauthorized, http.StatusForbidden:
		return fault.New(fault.Denied, "the index of packages does not let paddock in (%d)", status).WithHint("the operator has to check its credentials")
	case http.StatusNotFound, http.StatusGone:
		return fault.New(fault.NotFound, "the index of packages does not have the file that it names")
	}
	return errIndex(fmt.Sprintf("its status is %d", status))
}
