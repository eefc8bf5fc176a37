// Package restartforecast says what a container would run after its next start: the same
// image, another one, or none.
//
// Promise: pure. There is an answer for each container, event (crash, recreate, reboot,
// reschedule, new-node, scale-up) and state of the registry (up, down). It is one of same,
// changes, fails, starts (nothing runs to compare with), unknown, none (the event does not
// start it), with a reason word and a sentence.
//
// The forecast follows the kubelet. Policy Always asks the registry, also when the image is on
// the node; Never does not ask it. IfNotPresent uses the node's current image of the name. That
// is not the running image if another pod's pull moved the tag. From 1.35 on, the kubelet may
// ask again for an image on the node that was pulled with other credentials. A digest never
// changes its image. A missing fact gives unknown and names the fact; nothing is guessed.
//
// Inputs: model.ImagePod and model.ImageNode, what registries answer. Outputs:
// model.RestartAnswer. Callers: internal/cli/tagscmd, internal/controller.
//
// Files: restart.go questions and answers, node.go one start on one node, pull.go
// what a pull gives, verify.go the kubelet's check of credentials, spread.go
// events that may be on any node.
package restartforecast
