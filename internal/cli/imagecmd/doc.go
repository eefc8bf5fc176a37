// Package imagecmd has `refit image`, which builds and checks OS images without a cluster, and
// `refit config`, which imports node configuration of other tools.
//
// Promise: the same base, configuration and name give the same digest on every machine;
// layers of the base are linked or mounted where possible, not copied. An import applies
// nothing: its output is a NodeConfig, and each part that it drops is named with a reason on
// standard error and changes the exit code. A check of an image reads its configurations and
// the tables of its layers, writes nothing, and prints every finding with its fix.
//
// Inputs: an image, files with NodeConfigs, Ignition or MachineConfigs. Outputs: an OCI
// layout or an image in a registry, its digest, a manifest. Caller: internal/cli.
package imagecmd
