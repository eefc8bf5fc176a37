// Package trackscmd is the part of `refit tags` that is about ImageTracks: status,
// approve, reject, rollback, retry.
//
// Promise: a person's word is for a digest as it was seen, and is written only if
// the track is still what was looked at. It writes specs of ImageTracks and
// nothing else. Standard output carries only the answer.
//
// Inputs: a cluster, arguments. Outputs: tables, JSON, exit codes. Caller:
// internal/cli, which adds the commands to `refit tags`.
package trackscmd
