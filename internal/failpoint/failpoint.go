package failpoint

import "sync"

// Points at which an agent can be killed, in the order in which an update
// passes them.
const (
	HeaderFetched        = "header.fetched"        // a header is in memory, not on disk
	HeaderStored         = "header.stored"         // a header is on disk
	ChunkWritten         = "store.chunk"           // a chunk is in a partial blob
	BlobSync             = "store.sync"            // a blob is complete, not synced
	BlobRename           = "store.rename"          // a blob is synced, not named
	MediumCopy           = "media.copy"            // between two chunks of a medium
	PeerFetch            = "peer.fetch"            // between two chunks of a peer
	LoadBlob             = "load.blob"             // a blob is in the runtime's directory, unknown to the runtime
	LoadContent          = "load.content"          // blobs are in the runtime, no image record
	LoadUnpack           = "load.unpack"           // records exist, not unpacked
	LoadDone             = "load.done"             // unpacked, not pinned
	PinLabel             = "pin.label"             // one record of several is labelled
	PinRecord            = "pin.record"            // pinned, not in the own record
	ImageRemoved         = "image.removed"         // an image is removed, its record is not
	JournalRun           = "journal.run"           // the run is in the journal, no step yet
	StepBefore           = "step.before"           // the start of a step is in the journal
	StepAfter            = "step.after"            // a step has ended, not in the journal
	JournalStep          = "journal.step"          // the end of a step is in the journal
	JournalFinish        = "journal.finish"        // the end of the run is in the journal
	UndoArmed            = "undo.armed"            // the deadline of a step that can cut the node off is in the journal
	UndoDisarmed         = "undo.disarmed"         // the node was well, the run is not finished
	UndoExpired          = "undo.expired"          // the decision to undo the run is in the journal, no undo yet
	KubeadmStarted       = "kubeadm.started"       // kubeadm runs in its own unit
	KubeadmBinary        = "kubeadm.binary"        // the new kubeadm is in its place
	KubeadmUnmarked      = "kubeadm.unmarked"      // undo: its success is forgotten, its changes are there
	ControlPlaneCommand  = "controlplane.command"  // a command of kubeadm runs that prepares the new control plane
	ControlPlanePrepared = "controlplane.prepared" // all is ready, the old control plane serves
	ExchangeRecorded     = "exchange.recorded"     // the exchange of files is decided, not started
	ExchangePrepared     = "exchange.prepared"     // the new files are next to their places
	ExchangeStopped      = "exchange.stopped"      // the kubelet is stopped, no file is replaced
	ExchangeRenamed      = "exchange.renamed"      // one file of several is replaced
	ControlPlaneReplaced = "controlplane.replaced" // the new control plane serves, the step is not done
	ControlPlaneGivenUp  = "controlplane.givenup"  // the decision to restore the old control plane is on disk
	KubeletReplaced      = "kubelet.replaced"      // its binary is replaced, the old one runs
	KubeletRestarted     = "kubelet.restarted"     // its restart was ordered and carried out
	KubeletRestored      = "kubelet.restored"      // undo: the old binary is back, the new one runs
	FilesKept            = "files.kept"            // what was there is kept, nothing is written
	FilesWritten         = "files.written"         // one file of several is written
	UnitSet              = "unit.set"              // a unit is in its new state, not observed
	UnitRefreshed        = "unit.refreshed"        // a unit was restarted because of a file
	ProgramReplaced      = "program.replaced"      // one program of several is replaced
	PluginsReplaced      = "plugins.replaced"      // one network plugin of several is replaced
	RuntimeRestart       = "runtime.restart"       // the container runtime was asked to restart
	EtcdSnapshot         = "etcd.snapshot"         // a snapshot of etcd is written, not named
	SQLiteStopped        = "sqlite.stopped"        // the unit with the database is stopped, nothing is copied or restored
	SQLiteCopied         = "sqlite.copied"         // the copy of the database is whole, its record is not written
	SQLiteRenamed        = "sqlite.renamed"        // undo: one file of the database is the old one
	SQLiteRestored       = "sqlite.restored"       // undo: the old database is in place, which is not on record
	CertRenewed          = "cert.renewed"          // a certificate is renewed, who uses it runs with the old one
	RebootNoted          = "reboot.noted"          // the ending boot is on disk, the reboot is not requested yet
	StaticPodKept        = "staticpod.kept"        // the old manifest is kept, the new one is not written
	StaticPodWritten     = "staticpod.written"     // the new manifest is written, the kubelet has not run it
	StaticPodGivenUp     = "staticpod.givenup"     // the decision to restore the old manifest is on disk
	StaticPodBack        = "staticpod.back"        // the old manifest is back, the kubelet has not run it
	OSImported           = "os.imported"           // an OS image is on the host, no deployment of it
	OSDiscarded          = "os.discarded"          // what was staged is dropped, the image is not staged
	OSStaged             = "os.staged"             // an OS image is staged, which is not on disk
	OSLinked             = "os.linked"             // the new extension is linked, the old one is merged
	OSNoted              = "os.noted"              // the boot that is to end is on disk, the host does not restart
	OSGivenUp            = "os.givenup"            // the decision to roll the host back is on disk
	StatusApply          = "agent.status"          // before a status is written
	RunReported          = "agent.runreported"     // after a status with a finished run
)

var (
	mu   sync.Mutex
	hook func(name string)
)

// OnHit has f called at every point; restore ends that.
func OnHit(f func(name string)) (restore func()) {
	mu.Lock()
	defer mu.Unlock()
	hook = f
	return func() {
		mu.Lock()
		defer mu.Unlock()
		hook = nil
	}
}

// Here is a point.
func Here(name string) {
	mu.Lock()
	h := hook
	mu.Unlock()
	if h != nil {
		h(name)
	}
}
