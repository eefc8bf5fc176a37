// Package updatecmd has the commands for an existing update: pause, resume, retry, hold a
// node, release it, accept a risk, set drain options. It also has the view of a plan, the
// drill of a node, and the receipts of updates.
//
// Promise: each command is one small, idempotent change of one object. The controller
// acts on it, and refit status shows the result. ViewPlan only reads, and verifies the plan
// by its digest. A drill is predicted from the same facts as the gate; only --run and a yes
// start it, and only on a node that would recover. A yes also starts a rehearsed restore. Receipts are read within bounds, and
// nothing outside of their directory is opened.
//
// Inputs: names, the objects of the cluster, files of receipts. Outputs: a sentence,
// render.PlanView, render.DrillView, explain.Receipt, explain.Receipts. Caller: internal/cli.
package updatecmd
