// Package simhost is a host whose OS a real libostree deploys, without a virtual machine.
// It is a sysroot in a folder; every boot has its own root, mounts and processes.
//
// Promise: commits, deployments, staging, the merge of /etc and the boot loader's entries
// are libostree's own. Simulated are the firmware (it boots the entry with the highest
// version, or a picked one) and systemd's shutdown (`ostree admin finalize-staged`). A
// reboot ends the namespaces; a power cut kills everything at once. Nothing outside the
// folder is changed, and nothing stays mounted.
//
// The tests of this folder show the osimage updater and its drivers on it, on a node of a
// lab, and on a real systemd-sysext. They need root, and Debian's ostree, strace and
// systemd; without them they are skipped.
//
// Inputs: an image, this machine's programs (laid under those of the deployment).
// Outputs: an osimage.Host. Callers: tests.
package simhost
