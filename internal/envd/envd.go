// Package envd serves what E2B's clients ask of a sandbox: processes, terminals and
// files, in the protocol of E2B's own daemon (Connect with JSON, and plain HTTP for the
// contents of files). It runs inside the machine, as a part of the agent, and trusts
// whoever reaches it: the server outside has decided about the request.
package envd

// Version is the version of E2B's daemon whose features this one has. Clients switch
// features on by it.
const Version = "0.6.13"

// Setup is what a sandbox's processes begin with. The server sends it to [SetupPath]
// before the first request of a client.
type Setup struct {
	// Env is added to every process's environment.
	Env map[string]string `json:"env,omitempty"`
}

// SetupPath takes a [Setup]. The server outside lets no client reach it.
const SetupPath = "/paddock/setup"
