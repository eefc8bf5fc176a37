// Package coldstart checks, before the kubelet of a node starts, whether the node's pinned
// images are intact.
//
// Promise: no kubelet starts on an image that a power cut has torn. The check compares the
// blobs and the unpacked layers of every pinned image with what they must be. It compares
// sizes at every start, and contents too if the last shutdown was not clean. It rewrites torn
// parts in place and loads missing ones, from this node's own copy: no registry, no network,
// no API server. For what it cannot restore it waits some time, because the agent may get it
// from a peer or a medium. Then it removes the image from the runtime, so that nothing
// starts from it, and the node comes up without.
//
// The check never keeps a node down. It retries its own errors for a limited time: a full or
// read-only disk, a runtime that does not answer, a busy lock, a panic, a hung disk. Then
// the kubelet starts, and the report says why. Damaged records count as missing. The check
// needs no writable disk: locks and stamp are below /run, and the report on disk is best
// effort. Interrupted anywhere, the next run starts from the beginning.
//
// A stamp below /run says that this boot was checked; with it a run ends at once. So the
// kubelet's own unit can run the check at every start (ExecStartPre): if the unit that
// does it first was killed, the kubelet's restarts are the retry.
//
// Where one unit of a distribution starts both container runtime and kubelet, no check runs
// between them, and the agent restores images after the start. If a runtime has
// lost its whole store, a Folder gets this node's own copies before that unit starts. The
// distribution imports them before its kubelet runs, so that no container waits for an image.
//
// A LayerIndex lists a layer's archive: every file with its size and SHA-256, links with
// their targets, directories. Files, owners and times that the archive does not list are
// not compared, so that an intact layer is never reported as damaged. RestoreLayer
// compares the whole blob with its digest before it writes the first file, and no path
// of an archive leads out of the layer's directory. The index costs one unpacking, so it
// is cached on disk; a corrupt cache entry is an error, never a shorter index.
//
// Inputs: the last desired state of the node, its library, the runtime. Outputs: the
// runtime's store, a Report below /run and on disk, problems for the node's status.
// Callers: refit-agent preflight; the agent (Indexer, ReadReport, Folder.Clear).
package coldstart
