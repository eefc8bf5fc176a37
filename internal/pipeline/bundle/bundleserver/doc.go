// Package bundleserver is a read-only registry over opened bundles: the pull side of the OCI
// distribution specification.
//
// Promise: it serves blobs from where they are, and writes nothing. Every byte was compared with
// the bundle's header before it leaves, and the last chunk of a whole blob leaves only after the
// blob's own digest matched. A damaged blob thus ends as an error or a broken connection, never
// as a complete wrong body. It never serves a payload. Memory stays at a few chunks for bundles of any
// size, for any number of clients.
//
// An image example.test/app:1 has two addresses: repository example.test/app of this registry,
// and repository app with the query ns=example.test, as containerd asks its mirrors.
//
// Inputs: open bundles, requests. Outputs: responses, and a log line for each request. Callers:
// `refit bundle serve`.
//
//	s, err := bundleserver.New(ctx, log, file)
//	err = s.Serve(ctx, listener)
package bundleserver
