// Package osimage shows the osimage updater and its drivers on real libostree
// deployments (package simhost, and a node of a lab) and on a real systemd-sysext. It needs root, and
// Debian's ostree, strace and systemd; without them its tests are skipped.
package osimage
