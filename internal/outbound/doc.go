// Package outbound connects to servers that a cluster object, a bundle or another
// server named.
//
// Promise: refit runs on the host's network, so it connects to no loopback, link-local,
// unspecified, multicast or cloud metadata address, unless the administrator allowed
// that server in refit's own configuration. The resolved address of every connection
// counts, so neither a name, a redirect nor the realm of a token leads there. A
// proxy of the environment may be local: the administrator set it. What a proxy connects
// to is the proxy's decision, except for such addresses in URLs.
//
// Redirects. KeepLogins keeps the logins of a server from those that it redirects to: cloud registries
// redirect requests for blobs to their storage.
//
// Inputs: what is allowed, and the setting that allows it. Outputs: a transport, or the
// dial function of one. Callers: internal/registry, internal/oci, internal/agent/service,
// internal/controller/bootstreams, internal/controller/clusterapi/hooks,
// internal/controller/notifications.
//
//	t := outbound.New("-local-registry", "127.0.0.1:5000").Transport()
package outbound
