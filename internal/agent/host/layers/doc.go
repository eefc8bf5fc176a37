// Package layers compares unpacked layers of images with what they were unpacked
// from, and puts back what is not as it was.
//
// Promise: an Index is what a layer's archive says: every file with its size and
// SHA-256, links with their targets, directories. Check reads only; what the
// archive does not say (other files, owners, times, whiteouts) is not judged, so
// that a layer that is right is never called wrong. Restore reads the whole blob
// and compares it with its digest before it writes the first file. A path of an
// archive never leads out of the layer's directory.
//
// An Index costs an unpacking and is kept (Save, Load), so that sizes can be
// compared at every start and contents after a power cut, also on a node that
// keeps no copy of the blob. A kept one that is torn is an error, never a short one.
//
// Inputs: a blob, a directory in the overlay format. Outputs: Index, Damage.
// Callers: the check before the kubelet (agent/preflight), tests that judge it.
package layers
