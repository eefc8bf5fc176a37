// Package simhost is a host whose OS is deployed by a real libostree, without a
// virtual machine: a sysroot in a folder, and a root, mounts and processes of its own
// for every boot.
//
// Promise: what libostree does is real (commits, deployments, staging, the merge of
// /etc, the boot loader's entries); what is played is the firmware (it takes the
// entry with the highest version, or the one that is picked), systemd at shutdown
// (it calls `ostree admin finalize-staged`) and the reboot (the namespaces end). A
// power cut kills everything at once. Nothing outside the folder is changed, and
// nothing is left mounted.
//
// The tests of this folder show the osimage updater and its drivers on it, on a node of a
// lab, and on a real systemd-sysext. They need root, and Debian's ostree, strace and
// systemd; without them they are skipped.
//
// Inputs: an image, this machine's programs (laid under those of the deployment).
// Outputs: an osimage.Host. Callers: tests.
package simhost
