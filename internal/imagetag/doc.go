// Package imagetag reads image tags: what a tag promises, and which of two is newer.
//
// Promise: two tags are ordered only where an order is known: points (tags that
// are made once and name one build) of one scheme, one repository, one build
// project and one variant. Everything else is Incomparable, with the reason; no
// answer is guessed from a name. A tag that may move (latest, 2.6, 2.6.2-rev1)
// is a pointer and has no place in the order. Resolve it to its digest, and
// compare the long tag that has that digest.
//
// Numbers are integers, compared part by part: rev10 is above rev9 and b5.10
// above b5.9. Only the application's part is read as a version; a rev is never
// a pre-release.
//
// Inputs: tags and references as text, a Scheme that a person declared. Outputs:
// Tag, Order, Ref. Callers: internal/imagetag/*, internal/controller/imagetracks,
// internal/cli/tagscmd.
//
//	s, err := tag.ByName("rev")
//	order, why := s.Compare("2.6.2-rev10-b1.1", "2.6.2-rev9-b1.1") // Newer
package imagetag
