// Package osimage decides how a pool gets its OS image: which build is wanted and by
// which builder, where each part of a configuration goes, and what a change costs.
//
// Promise: pure.
//
//   - Decide: a build's name is the hash of its inputs, so the same inputs are the same
//     build. An image is built again only if the registry reports that it is gone; while
//     the registry refuses or is unreachable, the build waits. No image is garbage that a
//     node has booted, is to boot, or would roll back to.
//   - PlaceConfig: the same configuration gives the same entries in the same order, and
//     everything in it has an item with the rule that placed it. Secrets, files that not
//     everybody may read, and paths that an update does not apply (/var, /home) are never
//     in an image. A configuration that cannot be placed (/usr/etc, a secret below /usr)
//     is a verdict, and then there is no image.
//   - DecideDisruption: which services reload or restart, whether pods are evicted, whether
//     the node reboots. A change without a rule means a reboot. A pool's own rules come
//     before the defaults; of one list the closest counts: the exact path, then the longest
//     pattern. Every action is there once. A reboot stands alone, since it does the rest.
//
// Inputs: an OSImage's words, the base's digest, the builds there are, what the registry
// reported; a merged model.NodeConfig; rules and changes. Outputs: a Decision with its
// reason; a Placement; a Disruption. Callers: controller/osimages, controller/nodeconfigs,
// osimage/{contents,imagebuild}, refit image build. Example:
//
//	d := osimage.Decide(osimage.Situation{Wanted: inputs, Builds: builds, Registry: osimage.Present})
package osimage
