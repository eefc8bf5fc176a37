// Package bootstreams reads the BootImageStreams: the data from wherever it
// stands, and whether it may be used yet.
//
// Promise: data that cannot be read is said on the object and used by nobody;
// what was fetched is kept as a Content, so that a restart and a site without a
// network have it too; nothing is fetched more often than asked for. A stream is
// never used for machines of an older release than its own.
//
// What a bundle or an artifact with a digest brings has that digest, and is asked
// for once.
//
// Inputs: BootImageStreams, ConfigMaps, Contents, URLs, bundles, registries. Outputs: Stream values,
// status of the objects. Caller: controller/bootimages.
package bootstreams
