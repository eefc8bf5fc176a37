// Package gcp asks Google Cloud's Compute Engine about images.
//
// Promise: an image exists if its project shows it in status READY, and it is neither obsolete nor
// deleted. Only the answer "not found" of the API means that it does not exist. The package
// reads only (compute.images.get, compute.images.getFromFamily).
//
// Inputs: credentials as gcloud finds them (application default credentials). Output:
// cloud.Answer. Caller: cmd/refit-providers.
package gcp
