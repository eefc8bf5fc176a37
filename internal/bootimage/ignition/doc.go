// Package ignition changes first-boot configurations (Ignition): from version 2,
// which new boot images do not read, to version 3; the authority in them; and
// makes the one that says on the console why a machine cannot join.
//
// Promise: pure. Nothing that a user wrote is lost: every key is either carried
// over or named in an error, and then nothing is changed. What is of version 3
// already, and what is no Ignition, is left alone.
//
// Inputs: JSON. Outputs: JSON, or an error that names the place. Callers:
// internal/controller/bootimages.
package ignition
