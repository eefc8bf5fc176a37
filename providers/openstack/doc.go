// Package openstack asks Glance, the image service of OpenStack, about images, and uploads files.
//
// Promise: an image exists if exactly one visible image has its name, is active, and was not
// uploaded by refit without a comparison. refit writes the SHA-256 of the stream's file to the
// image before it sends a byte. It marks the image as verified after Glance reported the digest
// of the bytes that refit sent. Glance cannot continue an upload: refit deletes an image
// of its own that is not verified, and starts anew. It deletes no other image.
//
// Inputs: an entry of clouds.yaml. Outputs: cloud.Answer, images. Caller: cmd/refit-providers.
package openstack
