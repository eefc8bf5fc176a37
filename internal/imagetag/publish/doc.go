// Package publish decides what a publisher may push: which tags are made, which
// move, which must not, and what may be deleted later.
//
// Promise: the content decides the case of an update: 1 new version, 2 definition fixed,
// 3 automatic rebuild, 4a maintenance of the application's package, 4b version mismatch
// between tag and image. A point is created once and never moved. A pointer moves only
// forward, to the newest point of its line. A pointer whose image has no known place does not
// move. A refused plan has no steps, and names every reason with its fix. Equal inputs give
// equal plans; after an interruption a new plan continues.
//
// Inputs: Published (tags and the content behind them), Event (the new image and
// what its publisher says of it), Rules; Keep and a time for retention. Outputs:
// Plan, Retention, both printable and replayable. Callers: internal/cli/tagscmd.
//
//	plan := publish.MakePlan(published, event, publish.Rules{})
//	for _, s := range plan.Steps { ... } // in this order; HEAD the tag first, it must be s.From
package publish
