// Package updatecmd has the commands for an existing update: pause, resume, retry, hold a
// node, release it, accept a risk, set drain options. It also has the view of a plan, and
// the drill of a node.
//
// Promise: each command is one small, idempotent change of one object. The controller
// acts on it, and refit status shows the result. ViewPlan only reads, and verifies the plan
// by its digest. A drill is predicted from the same facts as the gate; only --run and a yes
// start it, and only on a node that would recover.
//
// Inputs: names, the objects of the cluster. Outputs: a sentence, render.PlanView,
// render.DrillView. Caller: internal/cli.
package updatecmd
