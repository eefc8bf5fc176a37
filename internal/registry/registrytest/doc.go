// Package registrytest starts a real registry for a test, and fills it.
//
// Promise: the registry is Debian's docker-registry (distribution), with a directory and a
// port of its own on the loopback, and without credentials unless StartWithLogin asks for some. It ends with the test, however
// the test ends; nothing of it stays enabled, running or on disk. Without the Debian
// package, or on another system than Linux, the test is skipped with a message: `make test`
// installs it.
//
// StartWithTokens starts a registry that asks for tokens of a TokenServer, also of another program
// of distribution: test/distribution has its version 3.
//
// StartCloud is the exception: a registry in this process that redirects requests for blobs.
//
// Inputs: a test, images as a few words of content. Outputs: an address,
// digests, the requests that were served. Callers: tests of internal/registry,
// internal/cli/tagscmd, internal/controller/imagetracks.
//
//	r := registrytest.Start(t)
//	d := r.Push("app", registrytest.Image{Version: "2.6.2"}, "2.6.2-rev1-b1.1", "2.6.2")
//	r.Stop() // and r.Resume()
package registrytest
