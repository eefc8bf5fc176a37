// Package sysroot is a disk that libostree has deployed an OS on: it is installed
// from an image, and read as firmware does.
//
// Promise: commits, deployments and the boot loader's entries are libostree's own.
// What is played is the firmware: of the entries the one with the highest version
// boots. The deployment says itself from which image it is.
//
// Inputs: a folder, an OCI layout with one image. Outputs: the folder filled, its
// entries. Callers: internal/lab/machine (nodes that boot an OS image),
// test/osimage/simhost.
package sysroot
