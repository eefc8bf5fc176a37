// Package track decides what is new behind a tag that is followed, who may take
// it, and which workload gets it next. It is pure.
//
// Promise: follow the pointer, run the digest, name by the long tag. Nothing
// goes backwards by itself: where it cannot be shown that an image is newer, a
// person must say so. An approval is for one digest and dies when the tag moves
// again. After a rollback from a digest, only a later approval selects it again. One workload
// at a time, and
// never more of its pods down than its budgets allow; what belongs to a GitOps
// tool is proposed, not changed.
//
// Size: candidates, roll-out and records are about one Image and one State, and
// sources may not import each other.
//
// Inputs: Track (what a person said), State (what is remembered), Look (what a
// registry or a bundle answered), what the workloads name and run, now. Outputs:
// the next State, Candidates with class, decision and why, Rows and Steps.
// Callers: internal/controller/imagetracks, internal/cli/tagscmd.
//
//	s := track.Observe(state, observation, now)
//	s, candidates := track.Decide(t, s, found, now)
package track
