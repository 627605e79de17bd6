package paddock

import (
	"encoding/json"
	"errors"
	"io"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// mayImport is which package of this module may import which others of it.
// To allow a new edge, change the table in the same commit and say why.
var mayImport = map[string][]string{
	"cmd/paddock":                          {"guest/dist", "internal/app", "internal/cli", "internal/helper", "internal/sandbox/linux", "internal/sandbox/linux/agent", "internal/sandbox/wasm/worker"},
	"console":                              {},
	"guest/dist":                           {},
	"guest":                                {"internal/fault"},
	"guest/build/instrument":               {},
	"guest/build/native":                   {"guest/build/instrument"},
	"guest/build/pack":                     {"guest", "guest/build/instrument"},
	"internal/sessionfile":                 {"internal/blob", "internal/fault", "internal/history", "internal/workspace", "internal/iolimit"},
	"internal/sessionfile/sessionfiletest": {},
	"internal/audit":                       {"internal/auth", "internal/fault", "internal/telemetry", "internal/textsafe"},
	"internal/approval":                    {"internal/blob", "internal/fault", "internal/lock", "internal/table"},
	"internal/auth":                        {"internal/fault", "internal/table", "internal/lock", "internal/atomicfile", "internal/textsafe", "internal/privatefile", "internal/iolimit", "internal/localhost"},
	"internal/atomicfile":                  {},
	"internal/bindings":                    {},
	"internal/bindings/broker":             {"internal/bindings", "internal/bindings/catalog", "internal/bindings/journal", "internal/bindings/schema", "internal/bindings/stub", "internal/bindings/upstream", "internal/blob", "internal/egress", "internal/fault", "internal/linkfarm", "internal/textsafe", "internal/membudget", "internal/sandbox", "internal/secret", "internal/secret/redact", "internal/table", "internal/localhost"},
	"internal/bindings/journal":            {"internal/fault", "internal/atomicfile"},
	"internal/bindings/oauth":              {"internal/fault", "internal/localhost"},
	"internal/bindings/upstream":           {"internal/bindings", "internal/fault", "internal/textsafe", "internal/membudget", "internal/secret/redact", "internal/iolimit"},
	"internal/bindings/catalog":            {"internal/bindings", "internal/bindings/schema", "internal/bindings/stub", "internal/blob", "internal/fault", "internal/table", "internal/textsafe"},
	"internal/bindings/schema":             {"internal/fault", "internal/textsafe", "internal/pattern"},
	"internal/bindings/stub":               {"internal/bindings", "internal/bindings/schema", "internal/textsafe"},
	"internal/blob":                        {"internal/fault", "internal/lock", "internal/atomicfile"},
	"internal/blob/blobtest":               {"internal/blob"},
	"internal/archive":                     {"internal/fault", "internal/iolimit"},
	"internal/archive/archivetest":         {},
	"internal/cluster":                     {"internal/blob", "internal/fault"},
	"internal/cluster/clustertest":         {"internal/cluster/natsserver"},
	"internal/cluster/natsserver":          {"internal/fault"},
	"internal/checkpoint":                  {"internal/blob", "internal/fault", "internal/history", "internal/sandbox", "internal/workspace"},
	"internal/app":                         {"guest", "internal/approval", "internal/audit", "internal/auth", "internal/bindings/broker", "internal/bindings/journal", "internal/bindings/oauth", "internal/bindings/stub", "internal/bindings/upstream", "internal/config", "internal/e2b", "internal/egress", "internal/egress/proxy", "internal/egress/streams", "internal/fault", "internal/helper", "internal/image", "internal/limit", "internal/mcpserver", "internal/mcpserver/transport", "internal/membudget", "internal/microsandbox", "internal/picture", "internal/pkgproxy", "internal/pkgproxy/install", "internal/sandbox", "internal/sandbox/linux", "internal/sandbox/linux/proxyenv", "internal/sandbox/wasm", "internal/secret", "internal/serverstore", "internal/session", "internal/skill", "internal/telemetry", "internal/trust", "internal/vault", "internal/web", "internal/web/approvals", "internal/web/files", "internal/web/preview", "skills", "internal/sandbox/typescript", "internal/atomicfile", "internal/textsafe", "internal/localhost", "console", "internal/web/console"},
	"internal/cli":                         {"internal/app", "internal/approval", "internal/audit", "internal/auth", "internal/bindings/broker", "internal/bindings/catalog", "internal/bindings/oauth", "internal/bindings/stub", "internal/bindings/upstream", "internal/config", "internal/fault", "internal/image", "internal/mcpserver", "internal/mcpserver/transport", "internal/pkgproxy", "internal/sandbox", "internal/secret", "internal/serverstore", "internal/notebook", "internal/session", "internal/setup", "internal/skill", "internal/telemetry", "internal/textsafe", "internal/trust", "internal/vault", "internal/web", "internal/web/preview", "internal/atomicfile", "internal/privatefile", "internal/workspace", "internal/uninstall"},
	"internal/serverstore":                 {"internal/blob", "internal/config", "internal/fault", "internal/table", "internal/vault", "internal/privatefile"},
	"internal/commitlog":                   {"internal/atomicfile", "internal/blob", "internal/fault", "internal/lock"},
	"internal/config":                      {"internal/auth", "internal/egress", "internal/fault", "internal/secret", "internal/iolimit"},
	"internal/trust":                       {"internal/blob", "internal/fault", "internal/lock", "internal/privatefile"},
	"internal/ipc":                         {"internal/fault"},
	"internal/egress":                      {"internal/fault"},
	"internal/egress/proxy":                {"internal/egress", "internal/fault"},
	"internal/egress/egresstest":           {},
	"internal/egress/streams":              {"internal/egress", "internal/egress/proxy", "internal/fault"},
	"internal/e2b":                         {"internal/atomicfile", "internal/auth", "internal/envd", "internal/fault", "internal/sandbox", "internal/session"},
	"internal/envd":                        {},
	"internal/expect":                      {},
	"internal/fault":                       {},
	"internal/growth":                      {},
	"internal/helper":                      {"internal/fault", "internal/sandbox/wasm/confine", "internal/share"},
	"internal/history":                     {"internal/blob", "internal/fault"},
	"internal/image":                       {"internal/blob", "internal/fault", "internal/lock", "internal/iolimit", "internal/localhost"},
	"internal/iolimit":                     {},
	"internal/textsafe":                    {},
	"internal/limit":                       {"internal/fault"},
	"internal/linkfarm":                    {"internal/blob", "internal/fault"},
	"internal/localhost":                   {},
	"internal/lock":                        {"internal/fault"},
	"internal/membudget":                   {"internal/fault", "internal/share"},
	"internal/loopback":                    {"internal/fault"},
	"internal/jsonbound":                   {},
	"internal/microsandbox":                {"internal/fault", "internal/jsonbound", "internal/membudget", "internal/sandbox", "internal/session"},
	"internal/mcpserver":                   {"internal/approval", "internal/bindings/broker", "internal/bindings/catalog", "internal/bindings/stub", "internal/bindings/upstream", "internal/fault", "internal/helper", "internal/mcpserver/execution", "internal/mcpserver/transport", "internal/textsafe", "internal/membudget", "internal/microsandbox", "internal/pkgproxy", "internal/pkgproxy/install", "internal/picture", "internal/sandbox", "internal/session", "internal/skill", "internal/telemetry", "internal/workspace"},
	"internal/mcpserver/execution":         {"internal/approval", "internal/blob", "internal/fault", "internal/lock", "internal/sandbox", "internal/session", "internal/table", "internal/textsafe"},
	"internal/mcpserver/transport":         {"internal/approval", "internal/fault", "internal/jsonbound", "internal/mcpserver/execution", "internal/membudget", "internal/session", "internal/textsafe"},
	"internal/pkgproxy":                    {"internal/archive", "internal/egress", "internal/fault", "internal/helper", "internal/limit", "internal/lock", "internal/membudget", "internal/iolimit"},
	"internal/pkgproxy/pkgproxytest":       {"internal/sandbox/sandboxtest", "tests/mcp/suite"},
	"internal/pkgproxy/install":            {"internal/fault", "internal/limit", "internal/pkgproxy", "internal/sandbox", "internal/session", "internal/workspace"},
	"internal/picture":                     {"internal/fault", "internal/helper"},
	"internal/pattern":                     {"internal/fault"},
	"internal/privatefile":                 {"internal/fault", "internal/iolimit"},
	"internal/pool":                        {"internal/fault", "internal/lock", "internal/sandbox", "internal/workspace"},
	"internal/quota":                       {"internal/fault", "internal/store"},
	"internal/sandbox":                     {},
	"internal/sandbox/linux":               {"internal/fault", "internal/sandbox", "internal/sandbox/linux/agent", "internal/sandbox/linux/proxyenv", "internal/sandbox/linux/gvisorfix", "internal/sandbox/wire", "internal/atomicfile", "internal/iolimit", "internal/ipc"},
	"internal/sandbox/linux/proxyenv":      {"internal/sandbox", "internal/atomicfile"},
	"internal/sandbox/linux/gvisorfix":     {},
	"internal/sandbox/linux/agent":         {"guest", "internal/envd", "internal/fault", "internal/sandbox", "internal/sandbox/wire", "internal/sandbox/wire/serve"},
	"internal/sandbox/sandboxtest":         {"internal/fault", "internal/sandbox"},
	"internal/sandbox/typescript":          {"internal/sandbox", "internal/helper", "internal/textsafe"},
	"internal/sandbox/wasm":                {"guest", "internal/fault", "internal/sandbox", "internal/sandbox/wasm/confine", "internal/sandbox/wasm/nativeworker", "internal/sandbox/wasm/worker", "internal/sandbox/wire"},
	"internal/sandbox/wasm/confine":        {"internal/sandbox"},
	"internal/sandbox/wasm/linear":         {"internal/atomicfile"},
	"internal/sandbox/wasm/native":         {},
	"internal/sandbox/wasm/nativeworker":   {"internal/atomicfile"},
	"internal/sandbox/wasm/wasi":           {},
	"internal/sandbox/wasm/worker":         {"guest", "guest/build/instrument", "internal/fault", "internal/sandbox", "internal/sandbox/wasm/confine", "internal/sandbox/wasm/linear", "internal/sandbox/wasm/wasi", "internal/sandbox/wire", "internal/sandbox/wire/serve"},
	"internal/sandbox/wire":                {"internal/fault", "internal/sandbox"},
	"internal/sandbox/wire/serve":          {"internal/sandbox", "internal/sandbox/wire"},
	"internal/sandbox/wire/wiretest":       {"internal/sandbox/wire"},
	"internal/secret":                      {"internal/blob", "internal/egress", "internal/fault", "internal/table", "internal/secret/redact", "internal/vault", "internal/privatefile", "internal/iolimit"},
	"internal/secret/redact":               {},
	"internal/session/hostcalls":           {"internal/sandbox"},
	"internal/notebook":                    {"internal/sandbox", "internal/session"},
	"internal/session":                     {"internal/sessionfile", "internal/blob", "internal/checkpoint", "internal/ipc", "internal/fault", "internal/history", "internal/textsafe", "internal/lock", "internal/loopback", "internal/pool", "internal/quota", "internal/sandbox", "internal/workspace", "internal/session/hostcalls", "internal/sessionstore"},
	"internal/sessionstore":                {"internal/atomicfile", "internal/blob", "internal/commitlog", "internal/checkpoint", "internal/fault", "internal/history", "internal/lock", "internal/quota", "internal/store", "internal/workspace"},
	"internal/session/sessiontest":         {"internal/sandbox", "internal/session"},
	"internal/setup":                       {"internal/fault", "internal/atomicfile"},
	"internal/skill":                       {"internal/bindings", "internal/bindings/catalog", "internal/bindings/stub", "internal/blob", "internal/archive", "internal/egress", "internal/fault", "internal/helper", "internal/iolimit", "internal/linkfarm", "internal/lock", "internal/sandbox/typescript", "internal/table", "internal/textsafe", "internal/workspace"},
	"internal/share":                       {},
	"internal/store":                       {"internal/fault", "internal/lock"},
	"internal/table":                       {"internal/blob", "internal/iolimit", "internal/lock"},
	"internal/table/natstable":             {"internal/fault", "internal/table"},
	"internal/table/tabletest":             {"internal/table", "internal/table/natstable"},
	"internal/telemetry":                   {"internal/auth", "internal/fault", "internal/textsafe"},
	"internal/uninstall":                   {"internal/lock", "internal/setup", "internal/workspace"},
	"internal/vault":                       {"internal/blob", "internal/fault", "internal/lock", "internal/privatefile", "internal/table"},
	"packaging":                            {},
	"skills":                               {},
	"skills/build/digests":                 {"internal/skill", "skills"},
	"tests/browser":                        {},
	"tests/crash":                          {},
	"tests/bench":                          {"internal/blob", "internal/fault", "internal/image", "internal/sandbox", "internal/sandbox/linux", "internal/sandbox/linux/agent", "internal/sandbox/wasm", "internal/sandbox/wasm/worker", "internal/session"},
	"tests/docs":                           {},
	"tests/e2b":                            {},
	"tests/engines":                        {},
	"tests/examples":                       {},
	"tests/hostile":                        {},
	"tests/image":                          {},
	"tests/image/imported":                 {"internal/sandbox/sandboxtest", "internal/lock"},
	"tests/image/pack":                     {},
	"tests/install":                        {},
	"tests/linux":                          {},
	"tests/mcp":                            {},
	"tests/model":                          {},
	"tests/mcp/suite":                      {"internal/sandbox/sandboxtest"},
	"tests/network":                        {},
	"tests/network/joined":                 {},
	"tests/network/linux":                  {},
	"tests/network/secrets":                {},
	"tests/network/preview":                {},
	"tests/network/packages":               {},
	"tests/paddocktest":                    {"internal/auth", "internal/sandbox/sandboxtest"},
	"tests/principals":                     {},
	"tests/service":                        {},
	"tests/tools":                          {},
	"tests/waiting":                        {},
	"internal/web":                         {"internal/auth", "internal/fault", "internal/iolimit", "internal/textsafe"},
	"internal/web/approvals":               {"internal/approval", "internal/auth", "internal/fault", "internal/web"},
	"internal/web/console":                 {"internal/auth", "internal/fault", "internal/session", "internal/web"},
	"internal/web/files":                   {"internal/table", "internal/auth", "internal/archive", "internal/fault", "internal/session", "internal/web", "internal/workspace", "internal/atomicfile", "internal/privatefile"},
	"internal/web/preview":                 {"internal/table", "internal/auth", "internal/fault", "internal/sandbox", "internal/session", "internal/web", "internal/atomicfile"},
	"internal/workspace":                   {"internal/blob", "internal/fault", "internal/membudget", "internal/pattern", "internal/iolimit"},
}

// outside is where a module from outside may be imported, by the longest
// prefix of the import's path. One that is not here may be imported nowhere.
var outside = map[string][]string{
	"github.com/agnivade/levenshtein":               {"internal/config", "internal/mcpserver"},
	"github.com/BurntSushi/toml":                    {"internal/config", "internal/pkgproxy", "internal/setup"},
	"github.com/andybalholm/brotli":                 {"internal/secret"},
	"github.com/bmatcuk/doublestar":                 {"internal/pattern"},
	"github.com/cenkalti/backoff/v5":                {"internal/auth", "internal/bindings/upstream", "internal/loopback", "internal/sandbox/linux/agent", "internal/sessionstore"},
	"github.com/creack/pty":                         {"internal/envd", "internal/sandbox/linux/agent"},
	"github.com/fsnotify/fsnotify":                  {"internal/envd"},
	"github.com/reeflective/readline":               {"internal/cli"},
	"golang.org/x/term":                             {"internal/cli"},
	"github.com/evanw/esbuild":                      {"internal/cli", "internal/pkgproxy", "internal/sandbox/typescript", "internal/skill"},
	"deps.dev/util/pypi":                            {"internal/pkgproxy"},
	"deps.dev/util/semver":                          {"internal/pkgproxy"},
	"github.com/go-git/go-git/v5":                   {"internal/skill", "internal/cli"},
	"github.com/go-jose/go-jose/v4":                 {"internal/auth"},
	"github.com/go-logr/logr":                       {"internal/telemetry"},
	"github.com/gofrs/flock":                        {"internal/lock"},
	"github.com/google/go-containerregistry":        {"internal/image", "tests/image/pack"},
	"github.com/google/jsonschema-go":               {"internal/mcpserver", "internal/mcpserver/execution"},
	"github.com/santhosh-tekuri/jsonschema/v6":      {"internal/bindings/schema"},
	"github.com/segmentio/encoding":                 {"internal/mcpserver/transport"},
	"github.com/klauspost/compress":                 {"guest", "guest/build/pack", "internal/sessionfile", "internal/sessionfile/sessionfiletest", "internal/blob", "internal/history", "internal/image", "internal/sandbox/wasm/nativeworker", "internal/sandbox/wasm/worker", "internal/secret", "tests/image/pack"},
	"github.com/landlock-lsm/go-landlock":           {"internal/sandbox/wasm/confine"},
	"github.com/modelcontextprotocol/go-sdk":        {"internal/mcpserver", "internal/mcpserver/execution", "internal/mcpserver/transport", "tests/bench", "tests/paddocktest"},
	"github.com/nats-io/nats-server/v2":             {"internal/cluster/natsserver", "internal/table/tabletest"},
	"github.com/nats-io/nats.go":                    {"internal/cluster", "internal/cluster/clustertest", "internal/table/natstable", "internal/table/tabletest"},
	"github.com/nats-io/nuid":                       {"internal/table/natstable"},
	"github.com/prometheus":                         {"internal/telemetry"},
	"github.com/spf13/cobra":                        {"internal/cli"},
	"github.com/spf13/pflag":                        {"internal/cli"},
	"github.com/rs/cors":                            {"internal/web"},
	"github.com/tailscale/hujson":                   {"internal/setup"},
	"github.com/tetratelabs/wazero":                 {"internal/sandbox/wasm/worker"},
	"github.com/yuin/goldmark":                      {"internal/skill"},
	"github.com/zalando/go-keyring":                 {"internal/vault"},
	"golang.org/x/crypto/chacha20poly1305":          {"internal/vault"},
	"go.opentelemetry.io/otel":                      {"internal/telemetry"},
	"go.opentelemetry.io/otel/attribute":            {"internal/session", "internal/telemetry"},
	"go.opentelemetry.io/otel/codes":                {"internal/session", "internal/telemetry"},
	"go.opentelemetry.io/otel/trace":                {"internal/session", "internal/telemetry"},
	"go.yaml.in/yaml/v3":                            {"internal/setup", "internal/skill"},
	"golang.org/x/image":                            {"internal/picture"},
	"golang.org/x/net/dns/dnsmessage":               {"internal/egress/egresstest"},
	"golang.org/x/net/html":                         {"internal/mcpserver", "internal/pkgproxy"},
	"golang.org/x/net/http/httpguts":                {"internal/bindings/upstream", "internal/egress", "internal/egress/proxy", "internal/egress/streams", "internal/secret"},
	"golang.org/x/net/idna":                         {"internal/egress"},
	"golang.org/x/net/publicsuffix":                 {"internal/egress"},
	"golang.org/x/net/bpf":                          {"internal/sandbox/wasm/confine"},
	"github.com/google/subcommands":                 {"internal/sandbox/linux"},
	"github.com/opencontainers/runtime-spec":        {"internal/sandbox/linux"},
	"gvisor.dev/gvisor":                             {"internal/sandbox/linux", "internal/sandbox/linux/gvisorfix"},
	"kernel.org/pub/linux/libs/security/libcap/psx": {"internal/sandbox/linux", "internal/sandbox/wasm/confine"},
	"golang.org/x/sys":                              {"tests/bench", "internal/envd", "internal/bindings/upstream", "internal/image", "internal/sandbox/linux", "internal/sandbox/linux/gvisorfix", "internal/mcpserver/transport", "internal/sandbox/linux/agent", "internal/sandbox/wasm", "internal/sandbox/wasm/confine", "internal/sandbox/wasm/linear", "internal/sandbox/wasm/wasi", "internal/sandbox/wasm/worker", "internal/workspace", "internal/lock", "internal/limit", "internal/blob", "internal/atomicfile"},
	"golang.org/x/sync":                             {"internal/share"},
	"golang.org/x/text":                             {"internal/bindings/schema", "internal/skill"},
	"golang.org/x/time":                             {"internal/limit"},
	"modernc.org/sqlite":                            {"internal/bindings/catalog", "internal/store"},

	"github.com/modelcontextprotocol/go-sdk/auth":    {"internal/bindings/oauth"},
	"github.com/modelcontextprotocol/go-sdk/oauthex": {"internal/bindings/oauth", "internal/bindings/upstream"},
	"golang.org/x/oauth2":                            {"internal/bindings/oauth"},
}

func TestImportsFollowTheTable(t *testing.T) {
	used := map[string]bool{} // rows of both tables, as "package path"
	for _, goos := range []string{"linux", "darwin", "windows"} {
		for _, p := range listPackages(t, goos) {
			name, ok := strings.CutPrefix(p.ImportPath, "paddock/")
			if !ok {
				continue // the root package: this test
			}
			allowed, known := mayImport[name]
			if !known {
				t.Errorf("package %s is not in the table", name)
			}
			used[name] = true
			for _, path := range p.Imports {
				if own, ok := strings.CutPrefix(path, "paddock/"); ok {
					used[name+" "+own] = true
					if !slices.Contains(allowed, own) {
						t.Errorf("on %s, %s imports %s", goos, name, own)
					}
				} else if first, _, _ := strings.Cut(path, "/"); strings.Contains(first, ".") {
					row := outsideRow(path)
					used[name+" "+row] = true
					if !slices.Contains(outside[row], name) {
						t.Errorf("on %s, %s imports %s", goos, name, path)
					}
				}
			}
		}
	}
	for name, all := range mayImport {
		if !used[name] {
			t.Errorf("the table has a row of %s, and there is no such package", name)
		}
		for _, own := range all {
			if !used[name+" "+own] {
				t.Errorf("the table lets %s import %s, which it does not", name, own)
			}
		}
	}
	for row, all := range outside {
		for _, name := range all {
			if !used[name+" "+row] {
				t.Errorf("the table lets %s import %s, which it does not", name, row)
			}
		}
	}
}

// outsideRow is the row of outside for an import, "" if there is none.
func outsideRow(path string) (best string) {
	for prefix := range outside {
		if (path == prefix || strings.HasPrefix(path, prefix+"/")) && len(prefix) > len(best) {
			best = prefix
		}
	}
	return best
}

type goPackage struct {
	ImportPath string
	Imports    []string
}

func listPackages(t *testing.T, goos string) []goPackage {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", "list", "-e", "-json=ImportPath,Imports", "./...")
	cmd.Env = append(cmd.Environ(), "GOOS="+goos, "CGO_ENABLED=0")
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list for %s: %v", goos, err)
	}
	var all []goPackage
	for d := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p goPackage
		if err := d.Decode(&p); errors.Is(err, io.EOF) {
			return all
		} else if err != nil {
			t.Fatal(err)
		}
		all = append(all, p)
	}
}
