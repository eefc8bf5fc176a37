// Package restartforecast says what a container would run after its next start: the same
// image, another one, or none.
//
// Promise: pure. For each container, event (crash, recreate, reboot, reschedule,
// new-node, scale-up) and state of the registry (up, down) the answer is one of
// same, changes, fails, starts (nothing runs to compare with), unknown, none
// (this event does not start it), with a reason word and a sentence. It follows
// what kubelets do: policy Always asks the registry, also when the image is
// there; Never never does; IfNotPresent takes what the name means on that node
// now, which is not what runs when another pod's pull has moved the tag; from
// 1.35 on the kubelet may ask again for an image that is there, because others
// pulled it with their credentials. A digest names one image for ever: it never
// changes. What is not known is answered with unknown and what is missing; it is
// never guessed.
//
// Inputs: model.ImagePod and model.ImageNode, what registries answer. Outputs:
// model.RestartAnswer. Callers: internal/cli/tagscmd, internal/controller.
//
// Files: restart.go questions and answers, node.go one start on one node, pull.go
// what a pull gives, verify.go the kubelet's check of credentials, spread.go
// events that may be on any node.
package restartforecast
