// Package inputs reads what an OSImage names beside its own words: texts and files in
// ConfigMaps, Secrets, authorities, a proxy.
//
// Promise: what is missing is a problem in a sentence, which a person mends; an error
// is only what the API server did not answer. Nothing secret is in a problem. All is
// read by value: what is read later changes nothing of a build that runs.
//
// Inputs: an OSImage, ConfigMaps of refit-nodes, Secrets of refit-builds. Outputs: a
// Given, credentials, a way to registries. Callers: internal/controller/osimages and
// its building.
package inputs
