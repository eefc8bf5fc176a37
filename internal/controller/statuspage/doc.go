// Package statuspage serves the state of the cluster to browsers.
//
// Promise: the page, the JSON and the events show the view that refit status shows, read only.
// Every answer with data needs a token that the API server knows and that may get the path of
// its view. Without TLS it listens on loopback only. The page needs no script, no other origin
// and at most 500 KB, also with 30,000 nodes. Texts of nodes and media are escaped.
//
// The receipt of an update is a page of its own, as text and as a QR code.
//
// Inputs: Nodes and refit's objects of the manager's cache, requests. Outputs: HTML, JSON,
// server-sent events. Caller: the controller.
package statuspage
