// Package blobstore keeps content-addressed blobs in a directory, filled chunk
// by chunk from several sides at once.
//
// Promise: a blob under its final name is complete, was synced before it got
// the name, and had its digest when it was completed. A chunk is compared with
// its SHA-256 before it is written and again when it is read. After a crash a
// partial blob is read again and every chunk of it compared, so what was
// written is not fetched twice and what was torn is. A complete blob that no
// longer matches is taken out of service and wanted again.
//
// Inputs: Blob (digest, size, chunk sums). Outputs: chunks, files. Callers: the
// agent halves of load and distribute, the updaters (payload files).
package blobstore
