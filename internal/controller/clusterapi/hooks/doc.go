// Package hooks implements the protocol of Cluster API's in-place update hooks in both
// directions. It covers what its controllers v1.12 to v1.14 send and accept, and how refit calls another
// extension with the same protocol.
//
// Promise: JSON over HTTPS POST as the controllers use it. Patches are base64 and omitted when
// empty, affectsAvailability is always set, and a refusal has status 200. An error never
// contains a part of a body: bodies carry join tokens and file contents. Every read has a size
// limit.
//
// Inputs: bodies. Outputs: decoded objects by role, encoded answers. Caller:
// internal/controller/clusterapi.
package hooks
