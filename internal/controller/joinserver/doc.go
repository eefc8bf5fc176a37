// Package joinserver gives machines that join their pool's first-boot configuration,
// over HTTPS, for a token that is used once.
//
// Promise: the configuration is given for a token that somebody made for that
// pool, that has not ended, and that no other machine has used: the API server
// decides which of two comes first. The token itself is stored nowhere, only its
// hash. Who fetched a configuration may fetch it again from the same address for
// two minutes: a connection may break. A boot image that is too old gets the
// reason for its console, uses up no token, and one event says so. Every replica
// serves; all state is in Secrets of the namespace refit-joins.
//
// Inputs: Secrets refit-join-HASH (pool, end, use) and first-boot-POOL (config,
// limits), requests. Outputs: configurations, events. Caller: the controller.
package joinserver
