// Package certs keeps the certificates of the extension server in one Secret:
// its own CA, the server certificate that the CA signed, and their rotation.
//
// Promise: every replica serves a certificate of the same CA. A server
// certificate is always signed by a CA that has been in the published bundle
// (ca.crt of the Secret) for at least the overlap, so a caller that fetched the
// bundle within the overlap always trusts it; only the very first CA is used at
// once. Nothing is written when nothing changes; of two replicas that rotate at
// once one write wins and both serve it. A clock that jumps back makes a new
// server certificate, not an invalid one.
//
// Inputs: the Secret's data, names, the time. Outputs: the data to write, a
// certificate for the TLS server. Caller: internal/controller/clusterapi.
package certs
