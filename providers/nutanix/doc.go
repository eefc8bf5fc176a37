// Package nutanix asks Prism Central (API v3) about images, and uploads files.
//
// Promise: an image exists if exactly one has its name, is complete, and was not uploaded by refit
// without a comparison. refit writes the SHA-256 of the stream's file into the description before
// it sends a byte. It compares what Prism reports of the bytes; if Prism reports no SHA-256, refit
// reads them back. Only then the description becomes "verified". Prism cannot continue an upload:
// refit deletes an image of its own that is not verified, and starts anew. It deletes no other
// image.
//
// Inputs: an address, a user. Outputs: cloud.Answer, images. Caller: cmd/refit-providers.
package nutanix
