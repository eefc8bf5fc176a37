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
// No case is a part of make test, which has three minutes for two of them. Good image B alone takes 83
// seconds of CPU time from the order to the end of the step (results/b.json), and the machine has one
// emulated CPU. The boot of A before it takes 34 more, images and disks 11. A snapshot in the cache
// cannot replace these: the agent in it would be that of an earlier build. Next to other work the
// machine got an eighth of a CPU, and the order took 622 seconds: it waits for the CPU, not for a timer.
//
// Inputs: machine/*.sh, which make the tree of an OS and its disk. Outputs: results/*.json.
package boot
