// Package convert makes plain values of API objects, and API objects of values, for
// the controller, the agent and the command line alike.
//
// Promise: each caller makes the same value of the same objects, so that they decide
// alike. Nothing is written to a cluster.
//
//   - TrustPolicies become one trust list.
//   - A NodeConfig becomes a nodeconfig.Source. File contents that do not exist are one
//     of its Problems, with their name; an error says that they could not be read.
//   - A pool becomes a join token and its Secret. The token cannot be guessed and is
//     stored nowhere; the Secret is named by its hash and holds the pool and the end.
//   - MachineSources, policies and rules become values of package skew: in the cluster,
//     in a dump for the command line, and in the file with the limits that a machine
//     checks itself by at its first boot. There, what cannot be read refuses the
//     machine; without a rule nothing is refused.
//
// Inputs: API objects. Outputs: values of model, nodeconfig and skew. Facts for a rollout
// and for the image audit are in the packages below.
package convert
