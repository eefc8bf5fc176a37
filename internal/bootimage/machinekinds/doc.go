// Package machinekinds knows, as data, the kinds that create machines: where each
// keeps its boot image, what a change of it does, and how it is written.
//
// Promise: pure. A write is a JSON patch that changes only the paths of the image. It first
// tests the values that were read: unknown fields survive byte for byte, and an object that
// changed meanwhile is not written. The effect of a change on running machines comes from the
// object itself; it is never assumed to be none.
//
// The table is table.yaml. A manager (MachineDeployment) either contains the image or refers
// to a template. An image kind (AWSMachineTemplate) lists the paths of the image.
// Administrators add or replace rows with Table.With.
//
// Inputs: decoded objects. Outputs: Facts, Reference, patches. Callers:
// internal/controller/bootimages, `refit bootimage`.
package machinekinds
