// Package publish decides what a publisher may push: which tags are made, which
// move, which must not, and what may be deleted later.
//
// Promise: the case of an update (1 new version, 2 definition fixed, 3 automatic
// rebuild, 4a maintenance of the application's package, 4b a tag that would lie)
// is derived from content, never taken on trust. A point is made once and never
// moved. A pointer moves only forward, to the newest point of what it stands for,
// so that no older line takes it; one whose present image has no known place is
// not moved. A plan that is refused has no steps, and names every reason with its
// cure. The same inputs give the same plan; a plan that was broken off is made
// again and goes on where it was.
//
// Inputs: Published (tags and the content behind them), Event (the new image and
// what its publisher says of it), Rules; Keep and a time for retention. Outputs:
// Plan, Retention, both printable and replayable. Callers: internal/cli/tagscmd.
//
//	plan := publish.Make(published, event, publish.Rules{})
//	for _, s := range plan.Steps { ... } // in this order; HEAD the tag first, it must be s.From
package publish
