// Package vsphere asks a vCenter about templates, and imports OVA files as templates.
//
// Promise: an image exists if a template has its name, or an item of a content library. A
// template that refit imported records the SHA-256 of its file; one of another file is a
// problem, never a match. An import runs under another name. vCenter's checksum of each disk is
// compared with the file; then the virtual machine is marked as complete, made a template and
// renamed. A later call destroys an incomplete import, only if refit's mark is on it, and starts
// anew: a lease of vCenter (HttpNfcLease) cannot continue a disk. It continues a complete one.
// One program at a time may upload to a folder.
//
// An item of a content library has another name too, until the disks in it were compared with the
// file: by vCenter's checksum, or by reading them. refit's mark is in its description.
//
// Inputs: a server, a user, the place for imports. Outputs: cloud.Answer, templates,
// items. Caller:
// cmd/refit-providers.
package vsphere
