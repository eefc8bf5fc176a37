// Command refit-providers asks clouds whether the boot images of a stream exist there, uploads
// missing files where the configuration allows it, and serves the answers as a list for a
// BootImageStream.
//
// Promise: refit's controller gets no credentials of a cloud, and needs this program only for what
// it serves; the last list stays valid when it stops. It writes nothing to the cluster. Uploads
// are off unless a cloud has `upload: true`.
//
// Inputs: a configuration file, a stream, files, credentials in files. Outputs: the list over
// HTTPS or in a file, images in clouds. Users: administrators;
// docs/how-to/ask-clouds-for-boot-images.md.
package main
