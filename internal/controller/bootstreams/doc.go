// Package bootstreams reads BootImageStreams: their data, and whether a stream may be used yet.
//
// Promise: a stream that cannot be read gets a condition and is not used. Fetched data is
// stored as a Content, so that a restart and a site without a network still have it. A source
// is not polled more often than configured. A stream is never used for machines of an older
// release than its own. Data from a bundle, or from an artifact with a digest, never changes
// and is fetched once.
//
// Inputs: BootImageStreams, ConfigMaps, Contents, URLs, bundles, registries. Outputs: Stream
// values, status of the objects. Caller: controller/bootimages.
package bootstreams
