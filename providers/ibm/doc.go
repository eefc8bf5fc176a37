// Package ibm asks IBM Cloud about images of its users: those of a region of VPC, and those of a
// workspace of Power Virtual Server.
//
// Promise: an image exists if exactly one has its name and is available (VPC: also deprecated).
// Where VPC reports the SHA-256 of an image's file and the stream has one, an image of another
// file is a problem, never a match. Only a list without the name means that an image does not
// exist; a refused login or another error is no answer. The package reads only.
//
// Inputs: a region or a workspace, an API key. Output: cloud.Answer. Caller: cmd/refit-providers.
package ibm
