// Package convert converts API objects to plain values, and values to API objects, for the
// controller, the agent and the command line.
//
// Promise: all callers get the same value from the same objects, so their decisions agree.
// Nothing is written to a cluster. TrustPolicies become one trust list. A NodeConfig becomes a
// nodeconfig.Source; missing file contents are listed in its Problems by name, and an error
// means that they could not be read. A pool becomes a join token and its Secret: the token
// cannot be guessed and is stored nowhere; the Secret is named by its hash and has the pool and
// the expiry. MachineSources, policies and rules become values of package skew, in the cluster,
// in a dump for the command line, and in the limits file that a machine checks at its first
// boot. That check refuses the machine for a value that cannot be read; without rules it
// refuses nothing.
//
// Inputs: API objects. Outputs: values of model, nodeconfig and skew. Facts for a rollout, for
// a status view and for the image audit are in the packages below.
package convert
