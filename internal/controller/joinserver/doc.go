// Package joinserver gives machines that join their pool's first-boot configuration,
// over HTTPS, for a token that is used once.
//
// Promise: a machine gets the configuration for a token that an administrator created for
// its pool, that has not expired, and that no other machine has used. The API server
// decides which of two machines is first. Only the hash of the token is stored. A machine
// may fetch its configuration again from the same address for two minutes, because a
// connection may break. A boot image that is too old gets the reason for its console, uses
// up no token, and causes one event. Every replica serves; all state is in Secrets of the
// namespace refit-joins.
//
// Inputs: Secrets refit-join-HASH (pool, end, use) and first-boot-POOL (config,
// limits), requests. Outputs: configurations, events. Caller: the controller.
package joinserver
