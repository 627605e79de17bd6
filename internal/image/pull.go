package image

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/remote/transport"

	"paddock/internal/fault"
)

// Request is what to pull.
type Request struct {
	// Reference is where it is, and what it is called here then.
	Reference string
	// Digest pins it; empty: what the reference says.
	Digest string
	// Progress is told how far it is, by one goroutine at a time; nil: nobody.
	Progress func(Progress)
}

// Pull brings an image from a registry, for this machine's platform. Layers that
// are there are not fetched again. After an error there is what there was before,
// and whole layers that the next try finds; so it is when the process is killed.
func (s *Store) Pull(ctx context.Context, r Request) (Image, error) {
	ref, err := s.parse(r.Reference)
	if err != nil {
		return Image{}, err
	}
	from := ref
	if r.Digest != "" {
		if !isDigest(r.Digest) {
			return Image{}, fault.New(fault.Invalid, "%.100q is not a digest", r.Digest).WithHint("it is sha256: and 64 hexadecimal digits")
		}
		if d, ok := ref.(name.Digest); ok && d.DigestStr() != r.Digest {
			return Image{}, fault.New(fault.Invalid, "the reference names another digest than the one to pin").WithHint("give one of them")
		}
		from = ref.Context().Digest(r.Digest)
	}
	lock, err := s.adding(ctx)
	if err != nil {
		return Image{}, err
	}
	defer lock.Close()
	src, err := s.remote(ctx, from)
	if err != nil {
		return Image{}, err
	}
	return s.add(ctx, full(ref), src, newMeter(r.Progress))
}

// parse reads a reference, with whether its registry may do without TLS.
func (s *Store) parse(called string) (name.Reference, error) {
	ref, err := parse(called)
	if err == nil && slices.Contains(s.config.Insecure, ref.Context().RegistryStr()) {
		ref, err = parse(called, name.Insecure)
	}
	return ref, err
}

// remote finds an image in its registry. Layers are fetched when they are opened.
func (s *Store) remote(ctx context.Context, ref name.Reference) (*source, error) {
	options := []remote.Option{
		remote.WithContext(ctx), remote.WithAuthFromKeychain(s.keychain()), remote.WithTransport(s.guard()),
		remote.WithPlatform(v1.Platform{OS: "linux", Architecture: runtime.GOARCH}), remote.WithUserAgent("paddock"),
	}
	if s.config.retry.Steps > 0 {
		options = append(options, remote.WithRetryBackoff(s.config.retry))
	}
	found, err := remote.Get(ref, options...)
	if err != nil {
		return nil, explainRegistry(ref, err)
	}
	img, err := found.Image()
	if err != nil {
		if strings.Contains(err.Error(), "no child with platform") {
			return nil, fault.New(fault.Unsupported, "there is no %s for linux/%s", ref, runtime.GOARCH).WithHint("use an image that is made for this machine too").WithCause(err)
		}
		return nil, explainRegistry(ref, err)
	}
	manifest, err := img.Manifest()
	if err != nil {
		return nil, errImage("its manifest cannot be read").WithCause(err)
	}
	if manifest.Config.Size > maxConfig {
		return nil, errImage("its configuration is too long")
	}
	config, err := img.RawConfigFile()
	if err != nil {
		return nil, explainRegistry(ref, err)
	}
	parsed, err := parseConfig(config)
	if err != nil {
		return nil, err
	}
	digests, err := layerDigests(parsed)
	if err != nil {
		return nil, err
	}
	if len(digests) != len(manifest.Layers) {
		return nil, errImage("its manifest has %d layers, and its configuration %d", len(manifest.Layers), len(digests))
	}
	src := &source{config: config, digest: found.Digest.String()}
	for i, d := range manifest.Layers {
		if len(d.URLs) > 0 {
			return nil, errImage("it has layers that are somewhere else than in its registry")
		}
		src.layers = append(src.layers, layer{digest: digests[i], size: d.Size, open: func(context.Context) (io.ReadCloser, error) {
			l, err := img.LayerByDigest(d.Digest)
			if err != nil {
				return nil, explainRegistry(ref, err)
			}
			body, err := l.Compressed()
			if err != nil {
				return nil, explainRegistry(ref, err)
			}
			return body, nil
		}})
	}
	return src, nil
}

// keychain finds the credentials of a registry: the configuration's, or else
// those that docker login left.
func (s *Store) keychain() authn.Keychain {
	return authn.NewMultiKeychain(configured(s.config.Credentials), users{})
}

// users are the credentials of this user's docker or podman login. Where the environment
// leaves open whose folders those are, there are none: the library would look in the
// working folder then, which anybody may have made.
type users struct{}

// Resolve implements [authn.Keychain].
func (users) Resolve(r authn.Resource) (authn.Authenticator, error) {
	if relativeLogin() {
		return authn.Anonymous, nil
	}
	return authn.DefaultKeychain.Resolve(r)
}

// relativeLogin tells whether a login would be looked for below the working folder.
func relativeLogin() bool {
	for _, key := range []string{"HOME", "XDG_RUNTIME_DIR", "XDG_CONFIG_HOME", "DOCKER_CONFIG", "REGISTRY_AUTH_FILE"} {
		if place := os.Getenv(key); place != "" && !filepath.IsAbs(place) {
			return true
		}
	}
	for _, key := range []string{"HOME", "XDG_RUNTIME_DIR", "XDG_CONFIG_HOME"} {
		if os.Getenv(key) != "" {
			return false
		}
	}
	// Only a file that is named and there is found before one of the working folder.
	for _, file := range []string{os.Getenv("REGISTRY_AUTH_FILE"), filepath.Join(os.Getenv("DOCKER_CONFIG"), "config.json")} {
		if info, err := os.Stat(file); filepath.IsAbs(file) && err == nil && !info.IsDir() {
			return false
		}
	}
	return true
}

// configured are credentials as USER:PASSWORD, by registry.
type configured map[string]string

// Resolve implements [authn.Keychain].
func (c configured) Resolve(r authn.Resource) (authn.Authenticator, error) {
	for host, secret := range c {
		reg, err := name.NewRegistry(host)
		user, password, ok := strings.Cut(secret, ":")
		if err == nil && ok && reg.RegistryStr() == r.RegistryStr() {
			return &authn.Basic{Username: user, Password: password}, nil
		}
	}
	return authn.Anonymous, nil
}

// explainRegistry says what a registry's refusal means.
func explainRegistry(ref name.Reference, err error) error {
	var (
		said *fault.Error
		t    *transport.Error
		n    net.Error
	)
	host := ref.Context().RegistryStr()
	switch {
	case errors.As(err, &said), errors.Is(err, context.Canceled):
		return err
	case errors.As(err, &t) && t.StatusCode == http.StatusNotFound:
		return fault.New(fault.NotFound, "the registry has no image %s", ref).WithHint("check the name and the tag").WithCause(err)
	case errors.As(err, &t) && (t.StatusCode == http.StatusUnauthorized || t.StatusCode == http.StatusForbidden):
		return fault.New(fault.Denied, "the registry does not give %s to us", ref).
			WithHint("check the name; if it is private, set registries.credentials for %s, or use docker login", host).WithCause(err)
	case errors.As(err, &t) && t.StatusCode == http.StatusTooManyRequests:
		return fault.New(fault.Unavailable, "the registry %s wants fewer requests", host).WithHint("try again later, or with credentials").WithCause(err)
	case errors.As(err, &t):
		return fault.New(fault.Unavailable, "the registry %s answers with status %d", host, t.StatusCode).WithHint("try again later").WithCause(err)
	case strings.Contains(err.Error(), "does not match requested digest"):
		return errImage("what the registry has is not what its digest says").WithCause(err)
	case errors.As(err, &n), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, io.EOF):
		reason := err
		var u *url.Error
		if errors.As(err, &u) {
			reason = u.Err // without the address
		}
		return fault.New(fault.Unavailable, "the registry %s cannot be reached: %.200v", host, reason).
			WithHint("check the network and the name; plain http is for loopback addresses, and for what registries.insecure names").WithCause(err)
	}
	return errImage("it cannot be read from its registry").WithCause(err)
}

// explainRead says why a layer's bytes stopped coming.
func explainRead(err error) error {
	var (
		said *fault.Error
		n    net.Error
	)
	switch {
	case errors.As(err, &said):
		return err
	case errors.As(err, &n), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, net.ErrClosed):
		return fault.New(fault.Unavailable, "the connection to the registry broke").WithHint("try again: layers that are whole are kept").WithCause(err)
	}
	return errImage("a layer is not what its digest says").WithCause(fmt.Errorf("reading a layer: %w", err))
}
