// Package bootimage decides whether refit writes a new boot image into one machine
// manager (a MachineDeployment, a MachineSet, a NodePool).
//
// Promise: pure. refit replaces no running machine unless the mode is Roll, or Piggyback
// together with a version that the user asked for. It leaves alone an unknown image, a newer
// image, and an object that another tool writes; each such decision names the reason and the
// fix. A canary, one additional machine, tries an image first where the policy wants that.
// refit does not fight another writer: after Contest.Writes it stops until both sides
// were quiet.
//
// Inputs: the manager, its current and its wanted image, other writers, earlier writes, now.
// Output: Decision. Caller: internal/controller/bootimages.
package bootimage
