// Package proxyenv gives the programs of a Linux machine what they need to find their way
// out by themselves, which is the HTTP proxy at sandbox.ProxyPort: variables, and a
// folder with the certificate of the authority that ends their TLS.
//
// The authority's certificate stands alone in its file: there is no other way out, so
// nobody else's certificates are ever seen. What reads the file for each connection goes
// on when it is replaced; what has read it once (an ssl.SSLContext of Python's) does not,
// and has to be made again.
package proxyenv

import (
	_ "embed"
	"errors"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"strconv"

	"paddock/internal/atomicfile"
	"paddock/internal/sandbox"
)

// Folder is the name of the folder that Fill fills; programs see it as "/" + Folder.
const Folder = "network"

// What the folder has, as programs see it.
const (
	folder      = "/" + Folder
	certificate = "ca.pem"
	wgetConfig  = "wgetrc"
	aptConfig   = "apt.conf"
)

// NodePath is where every machine has NodeScript, whether it has a way out or not: what
// does not find it does not begin, and a machine may be booted before its folder is filled.
const NodePath = "/dev/paddock/node.cjs"

// NodeScript has Node's fetch, http and https go through the proxy: before version 24 they
// know no variables for that, and none reads the certificate again that has begun.
//
//go:embed node.cjs
var NodeScript string

// environment is what programs find in their environment. Who reads what:
// HTTP_PROXY and the like curl, wget, git, apt, pip, npm, Python's urllib, requests and
// httpx, Go, Ruby, Rust's reqwest; SSL_CERT_FILE all of OpenSSL, Go, httpx, uv; the
// others whom they are called after. ALL_PROXY stays unset: programs take it for SOCKS.
var environment = func() map[string]string {
	proxy := "http://127.0.0.1:" + strconv.Itoa(sandbox.ProxyPort)
	const apart, ca = "localhost,127.0.0.1,::1", folder + "/" + certificate
	all := map[string]string{
		"HTTP_PROXY": proxy, "http_proxy": proxy, "HTTPS_PROXY": proxy, "https_proxy": proxy, "NO_PROXY": apart, "no_proxy": apart,
		"NODE_OPTIONS": "--require " + NodePath, "NODE_USE_ENV_PROXY": "1",
		"WGETRC": folder + "/" + wgetConfig, "APT_CONFIG": folder + "/" + aptConfig,
	}
	for _, name := range []string{
		"SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "NODE_EXTRA_CA_CERTS", "GIT_SSL_CAINFO", "PIP_CERT", "npm_config_cafile",
		"DENO_CERT", "CARGO_HTTP_CAINFO", "AWS_CA_BUNDLE", "HTTPLIB2_CA_CERTS", "BUNDLE_SSL_CA_CERT", "PERL_LWP_SSL_CA_FILE", "NIX_SSL_CERT_FILE",
		"GRPC_DEFAULT_SSL_ROOTS_FILE_PATH",
	} {
		all[name] = ca
	}
	return all
}()

// Environment is what the programs of a machine with a way out have in their
// environment. It is the caller's.
func Environment() map[string]string { return maps.Clone(environment) }

// Fill makes dir the folder of a machine whose authority has this certificate, in PEM.
// It costs next to nothing where it is so already, and replaces each file as a whole. ca
// is nil where there is no way out any more.
func Fill(dir string, ca []byte) error {
	files := map[string][]byte{
		wgetConfig: []byte("ca_certificate = " + folder + "/" + certificate + "\n"),
		aptConfig:  []byte("Acquire::https::CAInfo \"" + folder + "/" + certificate + "\";\n"),
	}
	var errs []error
	if ca != nil {
		files[certificate] = ca
	} else if err := os.Remove(filepath.Join(dir, certificate)); !errors.Is(err, fs.ErrNotExist) {
		errs = append(errs, err)
	}
	for name, data := range files {
		errs = append(errs, replace(filepath.Join(dir, name), data))
	}
	return errors.Join(errs...)
}

// replace makes a file hold data, at once.
func replace(path string, data []byte) error {
	if now, err := os.ReadFile(path); err == nil && string(now) == string(data) {
		return nil
	}
	return atomicfile.WriteFile(path, data, atomicfile.Options{Mode: 0o644})
}
