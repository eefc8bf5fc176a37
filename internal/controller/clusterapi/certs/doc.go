// Package certs keeps the certificates of the extension server in one Secret: its own CA, the
// server certificate signed by it, and their rotation.
//
// Promise: every replica serves a certificate of the same CA. The CA that signs a server
// certificate has been in the published bundle (ca.crt of the Secret) for at least the overlap.
// So a caller that fetched the bundle within the overlap always trusts the server; only the
// very first CA signs at once. Nothing is written when nothing changes. If two replicas rotate
// at once, one write wins and both serve it. If the clock jumps back, a new server certificate
// is issued instead of an invalid one served.
//
// Inputs: the Secret's data, names, the time. Outputs: the data to write, a certificate for the
// TLS server. Caller: internal/controller/clusterapi.
package certs
