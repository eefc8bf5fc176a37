// Package mirrors says where else an image may be read, as a registries.conf of version 2
// says it (containers-registries.conf(5)).
//
// Promise: the places come in the order in which they are tried, the image's own last; a
// registry that is blocked has none. Where the image is read never changes what it is
// called, so digests of what is built of it do not depend on it. TLS is always verified:
// insecure permits plain HTTP and no more.
//
// Input: the text of a registries.conf, a repository. Output: repositories. Callers:
// internal/oci, internal/controller/osimages.
package mirrors
