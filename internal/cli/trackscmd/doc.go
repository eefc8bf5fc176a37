// Package trackscmd has the commands of `refit tags` for ImageTracks: status, approve,
// reject, rollback, retry.
//
// Promise: a decision covers one digest, and is written only if the track is unchanged
// since it was read. It writes only specs of ImageTracks. Standard output has only the
// result.
//
// Inputs: a cluster, arguments. Outputs: tables, JSON, exit codes. Caller:
// internal/cli, which adds the commands to `refit tags`.
package trackscmd
