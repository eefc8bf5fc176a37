// Package coldstart is what a node asks itself before its kubelet starts: are the
// images that it holds whole?
//
// Promise: no kubelet starts on an image that a power cut has torn. Of every held
// image the blobs and the unpacked layers are compared with what they must be: by
// size at every start, by content too when the last end was no orderly one. What is
// torn is written anew where it lies, what is missing is loaded, from this node's
// own copy: no registry, no network, no API server. What cannot be put back is
// waited for some time, since the agent may get it from neighbours or a medium, and
// then taken out of the runtime, so that nothing starts from it; the node comes up
// without.
//
// The check is never the reason that a node stays down. Errors of its own (a full or
// read-only disk, a runtime that does not answer, a busy lock, a panic, a hung disk)
// are waited for with patience; then the kubelet starts, and the report says why.
// Damaged records count as missing. It needs no writable disk: locks and stamp are
// below /run, the report on disk is best effort. Cut off anywhere, the next run
// starts from the beginning.
//
// A stamp below /run says that this boot was checked; with it a run ends at once.
// That lets the kubelet's own unit ask (ExecStartPre) every time: if the unit that
// does it first was killed, the kubelet's restarts are the retry.
//
// A LayerIndex lists a layer's archive: every file with its size and SHA-256, links with
// their targets, directories. Files, owners and times that the archive does not list are
// not compared, so that an intact layer is never reported as damaged. RestoreLayer
// compares the whole blob with its digest before it writes the first file, and no path
// of an archive leads out of the layer's directory. The index costs one unpacking, so it
// is cached on disk; a corrupt cache entry is an error, never a shorter index.
//
// Inputs: the desired state that the node got last, its library, the runtime.
// Outputs: the runtime's store, a Report below /run and on disk, problems for the
// node's status. Callers: refit-agent preflight; the agent (Indexer, ReadReport).
package coldstart
