// Package boot shows OS images on a machine that really boots: QEMU without KVM, GRUB, a kernel,
// an initramfs, systemd and libostree. It holds tests only.
//
// Promise: nothing of the boot is simulated. The disk has GRUB with a configuration that counts
// boots, Debian's kernel and a deployment of libostree. The agent's units, its updater of OS
// images, its driver for libostree and its boot counter run in the machine. Simulated is the rest
// of a node: no kubelet runs, and the API server is a port on the host that answers. The test's own
// program is the agent in the machine (guest_test.go).
//
// The tests need root, packages of Debian (make test-boot-deps), a Debian mirror for the first run,
// and some twenty minutes: make test-boot. The cache is refit/boot below the user's cache directory.
//
// Inputs: machine/*.sh, which make the tree of an OS and its disk. Outputs: results/*.json.
package boot
