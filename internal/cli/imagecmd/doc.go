// Package imagecmd has the commands of machines' images and of their configuration. `refit image`
// builds and checks OS images without a cluster, and lists those of nodes. `refit config` imports node configuration of other
// tools. `refit bootimage` shows boot images, whether they are new enough for a target, and patches
// for objects that refit does not write.
//
// Promise: the same base, configuration and name give the same digest on every machine;
// layers of the base are linked or mounted where possible, not copied. An import applies
// nothing: its output is a NodeConfig, and each part that it drops is named with a reason on
// standard error and changes the exit code. A check of an image reads its configurations and
// the tables of its layers, writes nothing, and prints every finding with its fix. `refit bootimage`
// only reads, except five commands: token creates one Secret, uploaded writes spec.uploaded of a
// BootImageStream, rollback spec.rollback of a MachineSource, retry and accept its spec.canary. It
// uses the code and the facts of the controller.
//
// Inputs: an image; files with NodeConfigs, Ignition or MachineConfigs; a cluster, or a dump of it.
// Outputs: an OCI layout or an image in a registry, its digest, a manifest; tables, JSON, exit
// codes. Caller: internal/cli.
//
// Size: the commands of OS images and of boot images share views, words and the reader of pools; each
// is a file.
package imagecmd
