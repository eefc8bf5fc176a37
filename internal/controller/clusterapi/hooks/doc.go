// Package hooks is the wire of Cluster API's in-place update hooks, both ways:
// what its controllers v1.12 to v1.14 send and accept, and how refit asks
// another extension in the same words.
//
// Promise: JSON over HTTPS POST as the controllers speak it: patches in base64
// and left out when there are none, affectsAvailability always said, an answer
// with 200 even if it is a refusal. An error never holds a part of a body: bodies
// carry join tokens and file contents. Nothing is read without a limit.
//
// Inputs: bodies. Outputs: decoded objects by role, encoded answers. Caller:
// internal/controller/clusterapi.
package hooks
