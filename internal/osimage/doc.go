// Package osimage decides how a pool gets its OS image: the build and its builder, the place of
// each part of a configuration, and the disruption of a change.
//
// Promise: pure.
//
//   - Decide: a build's name is the hash of its inputs, so equal inputs are one build. refit
//     builds an image again only if the registry reports that it is gone. It waits while the
//     registry refuses or is unreachable. It never deletes an image that a node has booted, is
//     to boot, or would roll back to.
//   - PlaceConfig: equal configurations give equal entries in the same order, and every part
//     has an item with the rule that placed it. Secrets, files that not every user may read,
//     and paths that an update does not apply (/var, /home) never go into an image. A
//     configuration that cannot be placed (/usr/etc, a secret below /usr) gives a verdict and
//     no image.
//   - DecideDisruption: which services reload or restart, whether pods are evicted, whether
//     the node reboots. A change without a rule means a reboot. A pool's own rules come
//     before the defaults. Within a list the most specific rule counts: the exact path, then
//     the longest pattern. Each action occurs once. A reboot replaces all others.
//   - Admit: an image is refused before any node boots it, if nodes of its pool could not start,
//     join, or return by themselves. Unknown facts of nodes give no finding.
//
// Inputs: the spec of an OSImage, the base's digest, existing builds, the registry's answer;
// a merged model.NodeConfig; rules and changes; facts of an image and of its nodes. Outputs: a
// Decision with its reason; a Placement; a Disruption; Findings. Callers: controller/osimages,
// controller/nodeconfigs, controller/gatefacts,
// osimage/{contents,imagebuild}, refit image. Example:
//
//	d := osimage.Decide(osimage.Situation{Wanted: inputs, Builds: builds, Registry: osimage.Present})
package osimage
