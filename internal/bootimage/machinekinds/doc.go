// Package machinekinds knows, as data, the kinds that create machines: where each
// keeps its boot image, what a change of it does, and how it is written.
//
// Promise: pure. A write changes the paths of the image and nothing else: it is
// a JSON patch that first tests what was seen, so that fields that nobody here
// knows survive byte for byte and an object that changed meanwhile is not
// written. What a change would do to machines that run is read from the object
// itself, never assumed to be nothing.
//
// The table is table.yaml. A manager (MachineDeployment) either holds the image
// within itself or refers to a template; an image kind (AWSMachineTemplate) says
// where it is written. People add or replace rows with Table.With.
//
// Inputs: decoded objects. Outputs: Facts, Reference, patches. Callers:
// internal/controller/bootimages, `refit bootimage`.
package machinekinds
