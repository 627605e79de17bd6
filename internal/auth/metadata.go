package auth

// Metadata is the protected-resource document of RFC 9728: it tells a client
// where to get a token for this server. Its JSON is what is served, at
// /.well-known/oauth-protected-resource and the resource's path.
type Metadata struct {
	Resource               string   `json:"resource"`
	AuthorizationServers   []string `json:"authorization_servers"`
	ScopesSupported        []string `json:"scopes_supported,omitempty"`
	BearerMethodsSupported []string `json:"bearer_methods_supported"`
	ResourceName           string   `json:"resource_name,omitempty"`
}
