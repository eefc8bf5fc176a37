package explain

import "strings"

// Reason explains one reason word: what it means and what cures it.
type Reason struct {
	Word  string
	Means string
	Cure  string
}

// Reasons is the catalogue, in alphabetical order. `refit explain WORD` prints
// an entry; docs/reference/reasons.md is made of it.
var Reasons = []Reason{
	{"APIRemoved", "Somebody still asks for an API that the target version does not serve any more: after the update these calls fail.", "Move the client to the new API; the message names group, version and resource. An API server forgets only when it restarts: refit accept removed-apis, once the client was moved."},
	{"APIServerAway", "The only control-plane node moves, and the API server is away meanwhile. Workloads go on; the node's agent needs no API server and reports afterwards.", "Nothing to do: refit status shows how long it was. Commands that fail meanwhile may be repeated."},
	{"AgentMissing", "No refit agent has ever reported from this node, so nothing can be prepared or moved there.", "Run refit-agent install on the node, or refit install --from BUNDLE --ssh NODE."},
	{"AgentSilent", "The node's agent has not reported for three minutes. The node may be off, cut from the network, or the service may be stopped. What it was doing goes on without the API server.", "On the node: systemctl status refit-agent; journalctl -u refit-agent. Nothing is started on the node until it reports."},
	{"AnotherUpdateRunning", "One ClusterUpdate moves nodes at a time; this one waits for the other to end.", "Wait, or delete the other ClusterUpdate if it has not started."},
	{"ApprovedByDigest", "A person named this bundle's digest, so the nodes may load it.", "Nothing to do."},
	{"ApprovedByKey", "A TrustPolicy trusts the keys that signed this bundle, so the nodes may load it. Running it still takes a ClusterUpdate with its digest.", "Nothing to do."},
	{"AsExpected", "Everything is as the spec says.", "Nothing to do."},
	{"AwaitingApproval", "The bundle was found on a medium; nobody has approved it, so only its signed header was read.", "Compare the digest with the one you were given, then refit approve DIGEST."},
	{"AwaitingStart", "Everything is prepared and checked; a person decides when nodes move.", "refit plan, then refit apply."},
	{"BudgetSpent", "As many nodes of the pool are unavailable as its budget allows, so no further node starts.", "Wait until one is back; nodes that others cordoned or that are not Ready count too. Or raise maxUnavailable of the pool."},
	{"BuildNotGreater", "A build with this number or a greater one is published, or the number was counted in another project, so the new long tag would have no place above the others.", "Build again under a greater number, or let it be counted when it is published: refit tags plan --build next."},
	{"BundleCorrupt", "A byte of the bundle is not what its digest says. Nothing of that part was loaded.", "Write the stick again and check it with refit bundle verify; the message names the part and the offset."},
	{"BundleNotApproved", "The update names a bundle that is not approved to be loaded.", "refit approve DIGEST, or a TrustPolicy with the key that signed it."},
	{"BundleNotFound", "The bundle is approved, but no node has it on a medium or in its store.", "Plug the stick with this digest into any node."},
	{"BundleRevoked", "A TrustPolicy revokes this digest.", "Use another bundle, or take the digest out of revokedDigests if that was a mistake."},
	{"BundleTooNew", "The bundle's format or minRefit is newer than this refit.", "Update refit first: refit install --from that bundle."},
	{"BundleUnreadable", "The medium holds something that is not a bundle, or cannot be read.", "The message says what was found where. Check the stick with refit bundle inspect DEVICE."},
	{"CameBackOld", "A node that had been updated was seen at its old version again: it was booted into an old state, restored, or changed by something else.", "Find out what took it back (a second boot slot, an image, another tool), then refit retry --node NODE. It is not tried for ever by itself."},
	{"CaseDiffers", "The publisher said what kind of update it is, and the image's content says something else.", "Find out what else changed: the message names it. Or do not say a case; it is derived."},
	{"CertificateExpires", "A certificate of a control-plane node or kubelet ends before the update would, or within 30 days.", "Renew it on that node: kubeadm certs renew all, then restart the static pods. The message names node, file and day."},
	{"CheckUnknown", "A risk was accepted for a check that the gate does not have, so it accepts nothing.", "Correct the name; refit gate lists the checks."},
	{"ClockSkew", "The clock of a node is not that of the API server: certificates, leases and timeouts are judged wrongly.", "Set the clock on that node and keep it right (chrony, systemd-timesyncd); the message says by how much."},
	{"ClusterUnreachable", "The API server of the machine's own cluster does not answer refit, or there is no kubeconfig for it. A control plane that moves is away for a while.", "Wait; if it stays, look at the Secret CLUSTER-kubeconfig (or the one that refit.dev/kubeconfig-secret on the Cluster names) and at the way from the management cluster to that API server."},
	{"ConfigConflict", "Two NodeConfigs that match the same node want the same file, unit, certificate or kubelet field. It is not guessed which one counts; the node keeps the configuration it had.", "Take it out of one of them, or change a selector; the message names both and what they share."},
	{"ConfigInvalid", "A NodeConfig asks for something that refit does not change: a path of kubeadm, etcd, the runtime or refit itself, a unit the node needs, a ConfigMap that is not there.", "Change what the message names; it says why."},
	{"ConfigWaiting", "The configuration is accepted, and nodes are not yet as it wants. A NodeConfig moves no node by itself.", "refit plan, then refit apply: a ClusterUpdate brings the nodes there. If one is running, wait."},
	{"ControlPlaneUnhealthy", "A control-plane node is not Ready or the API server is not healthy; moving nodes now could lose the control plane.", "Mend the control plane first; the message names the node."},
	{"Copying", "Nodes copy and verify the bundle's parts.", "Wait; progress is in bytes per node. The message says when the stick may be pulled."},
	{"DigestMismatch", "The bundle that was found is not the one that is expected. Nothing of it was loaded.", "Plug in the right stick, or approve the found digest if it is the right one: the message gives both."},
	{"DisruptionBudget", "A PodDisruptionBudget does not allow the eviction of a pod; it is asked again every few seconds.", "Make more replicas ready or loosen the budget; the message names pod, budget and how many disruptions it allows."},
	{"DrainBlocked", "A pod cannot be evicted at all: it has no owner that would start it again, or eviction failed.", "Delete or move the pod yourself; the message names it. Nothing is forced."},
	{"Draining", "The node's pods are being evicted.", "Wait."},
	{"EtcdQuorum", "Too few etcd members would be left while this one moves. With two members, one that moves leaves no quorum: the API server hangs until it is back.", "Mend the member that the message names; for a control plane that stays available use three members."},
	{"EtcdSpace", "The database of etcd is close to its quota; when it is full the cluster takes no more writes.", "Compact and defragment etcd (etcdctl defrag), or raise its quota, before the update."},
	{"EtcdStays", "The target is older, and kubeadm does not take etcd back: etcd keeps its newer version and its data.", "Nothing to do if that is intended; the older API server works with it within one minor version."},
	{"EtcdUnhealthy", "An etcd member is not healthy; moving another one could lose the quorum.", "Mend the member first; the message names the node and what etcd says."},
	{"FactUnknown", "Something that a check needs could not be read, so the check cannot say yes.", "The message says what was asked of whom and what came back; mend that, or accept the risk by the check's name."},
	{"FallsBack", "No updater covers a field of the change, and the fallback of this pool is Replace: Cluster API replaces the machines.", "To keep the machines set refit.dev/in-place-fallback to Preserve, take the field out of the change, or register an updater for it."},
	{"ForeignCordon", "Somebody else has cordoned a node of the plan. It is updated and stays cordoned, and until then it counts as unavailable.", "kubectl uncordon the node, if nobody needs the cordon any more."},
	{"Halted", "A node failed. No further node starts; the failed node stays cordoned.", "Mend the cause that the message names, then refit retry."},
	{"ImagePullAlways", "The cluster or a pod asks a registry at every start, also for images that the nodes hold.", "Without a registry: take AlwaysPullImages out of the API server's admission plugins, or set imagePullPolicy IfNotPresent; the message names where."},
	{"ImageUnapproved", "Publishing waits for an approval, and this digest has none. An approval of another digest does not count.", "Let the tests run against this digest, then give it with --approved."},
	{"ImagesMissing", "A node does not hold, or does not pin, every image that it needs.", "Wait while nodes prepare. If it stays, plug in the stick; the message names node and numbers."},
	{"InsufficientSpace", "A file system of a node has less room than the bundle takes. Nothing was loaded on that node.", "Free the bytes that the message names on that node. Do not delete pinned images to do it."},
	{"InvalidKey", "A key of a TrustPolicy is not an Ed25519 public key in PEM.", "Put the text of refit.pub there; the message names the key."},
	{"Loading", "Images are written into the node's runtime and pinned.", "Wait."},
	{"MachineChanged", "Cluster API asks about a Machine that is not, or is no longer, as it says: it was changed, is being deleted, or is not in an update.", "Wait: Cluster API asks again."},
	{"NoSource", "The node needs parts of the bundle, and neither a medium nor a peer has them.", "Plug the stick into any node; check that agents reach each other on TCP port 7946."},
	{"NoUpdater", "No updater can make this change in place, so nothing starts.", "The message names the field and why; change the target, or add an updater."},
	{"NodeHeld", "A person holds this node: no update starts on it. Other nodes go on, and the update is complete when it was released and updated too.", "refit release NODE, when the reason that the message gives is gone."},
	{"NodeInNoPool", "UpdatePools exist and this node is in none of them, so it is left alone.", "Let an UpdatePool select the node, if it is to be updated."},
	{"NodeInTwoPools", "A node matches the selectors of two UpdatePools; it is not guessed which one counts.", "Change one of the selectors; the message names both pools."},
	{"NodeNotFound", "The update is limited to a node that is not in the cluster.", "Wait until it joins; if it is gone for good, delete the ClusterUpdate."},
	{"NodeNotReady", "A node of the plan is not Ready.", "Mend the node; the message names it."},
	{"NodePressure", "A node reports pressure on disk, memory or processes: it evicts pods and collects images by itself.", "Free what the message names on that node. Do not delete pinned images to do it."},
	{"NotReversible", "A step cannot be taken back; the plan said so before it ran. What came after it was taken back, the rest stays.", "The message names the step. Mend the cause and go on with refit retry; an older patch release is an update of its own (refit plan --allow-downgrade)."},
	{"NothingToDo", "Every node is at the target already.", "Nothing to do."},
	{"OlderThanRunning", "The bundle is older than what runs. An old, once good bundle is not a way back in.", "For a deliberate rollback: refit plan --allow-downgrade --to BUNDLE."},
	{"OutsideWindow", "The pool has maintenance windows, none is open now or too little is left of it for a node to finish in.", "Wait: the message says when the next window opens. Or change the windows of the UpdatePool."},
	{"Paused", "A person paused the update or the pool. Nodes that had started are finished first.", "refit resume, or set paused: false on the pool."},
	{"PayloadMissing", "The bundle lacks a file an updater needs, such as kubeadm or kubelet for this platform, or a node does not hold it yet.", "Create the bundle with payload:NAME=FILE for the platform the message names."},
	{"PinsIgnored", "The node's runtime ignores pins, so images could be collected before they are used.", "Update the runtime: containerd 1.7.3 or later, CRI-O 1.30 or later."},
	{"PlanChanged", "The plan is not the one that was approved, so nothing starts.", "Look at the new one with refit plan, then refit apply."},
	{"PlatformsLost", "The image that is published is there for a platform that the new one lacks: nodes of that platform would stop being updated.", "Build for all platforms, or allow it with --fewer-platforms."},
	{"PodNotEnding", "A pod was evicted and is still there well after its grace period.", "Look at what holds it: its finalizers, or the node's kubelet; the message says which. Nothing is deleted by force."},
	{"PointerStolen", "A pointer is to go to an image that is not the newest of what it stands for: an older line or revision would take it from a newer one.", "Leave the tag out: it stays where it is. The message names what it points at."},
	{"PointerUnknown", "A pointer names an image that has no long tag, so nobody can tell whether the new one is newer, and the old one would have no name left.", "Give that image its long tag, or allow the move once with --adopt."},
	{"QuorumAtRisk", "etcd has a number of members with which the restart of one stops the whole API for a while.", "Nothing to do if a pause of the API is fine; three members bear the restart of one."},
	{"ResourcesPending", "The bundle brings cluster resources that are not compared yet, or some that must be there before the first node moves and are not, or do not work.", "Wait; if it stays, status.resources of the ClusterUpdate says which object and why: grant refit-system/refit-controller the right to it, or let the owner of a field give it up."},
	{"Retrying", "A node failed, and its pool allows another attempt.", "Wait; the message says which attempt it is and what had failed."},
	{"RevNotBumped", "The image definition changed, and its revision did not: people who follow the intermediate tag would get a fix as if it were a rebuild.", "Bump the revision in the definition and build again. An image that carries no hash of its definition is judged by how its container starts; label it with dev.refit.definition."},
	{"RiskExpired", "An accepted risk has ended, so its check counts again.", "Cure the cause, or accept it anew: refit accept CHECK --reason TEXT --until DURATION."},
	{"RiskNotAcceptable", "A risk was accepted for a check that nobody can accept.", "Cure the cause that the check names."},
	{"SchemeUnfit", "The repository's tags follow a scheme that refit does not know, or cannot write.", "Declare one with --scheme: rev, dotted, dashed, release, distro-r, single, semver or date."},
	{"Settling", "The node was changed and is watched until its components run at the target without a restart.", "Wait."},
	{"Soaking", "Nodes that are done are watched for the time that the pool asks for, before others start.", "Wait; the message says until when. soakSeconds of the UpdatePool, or of its canary, sets the time."},
	{"StepDeadline", "A step took longer than its deadline. Only the time while the node's agent ran was counted.", "The message has what the step said last. Mend the cause on that node, or give the pool a longer deadline, then refit retry."},
	{"StepFailed", "A step failed on a node. The message has its last lines.", "Mend the cause on that node, then refit retry."},
	{"TagConflict", "A tag names one image in this bundle and another in a bundle that runs or comes first; a node can hold one of them.", "Wait until it is this bundle's turn, or give the image another tag; the message names both."},
	{"TagIllegal", "A tag breaks the rules of registries or of the repository's scheme: 1 to 128 letters, digits, _ . and -, numbers without leading zeros, no + ~ or :.", "Change the version or the build number, or set a mapping such as --map +=_."},
	{"TagLies", "A tag says another version of the application than the one inside the image.", "Publish it as the version that is inside; refit tags plan shows that plan. A rebuild that changed the version by itself is a new version, with its manifests and tests."},
	{"TagNotPlanned", "A tag is to be pushed that does not follow from this image.", "Leave it out, or name a floating tag with --floating."},
	{"TagTaken", "A long tag names another digest already. What names one build is never moved.", "Build again under a new number, or --build next."},
	{"UndoFailed", "A node failed and could not be taken back either; it stays cordoned.", "Look at the node: the message has the last lines of the step. Then refit retry, or replace the node."},
	{"Undoing", "The steps that were started on the node are taken back, last first.", "Wait."},
	{"Undone", "Every step that was started on the node was taken back, and the node was observed as it was before.", "Mend the cause of the failure, then refit retry."},
	{"Updated", "The node was observed at the target.", "Nothing to do."},
	{"UpdaterSilent", "An external updater does not answer, or not as the protocol says. Nothing is done and nothing is called done without it.", "Mend the updater that the message names; refit asks again."},
	{"Updating", "The node's steps run.", "Wait."},
	{"VersionSkew", "The step between the versions is not supported: kubeadm moves one minor version at a time and never back.", "Use a bundle of the next minor version first; the message names both versions."},
	{"VersionUnknown", "The image does not say which version of the application is inside, so nobody can tell whether its tag lies.", "Label it with org.opencontainers.image.version, or say --inside VERSION as read from its packages."},
	{"WebhookBlocks", "An admission webhook refuses everything while its backend is away, and the backend runs only where nodes are drained.", "Run the backend on several nodes, or exclude its own namespace from the webhook, or set failurePolicy Ignore; the message names it."},
	{"WindowInvalid", "A window of the pool cannot be read, so no node of the pool starts.", "Correct spec.windows of the UpdatePool; the message names the time zone or time."},
	{"WouldGoBack", "The image is older than one that is published: an old digest under a new number, an older version or package inside.", "A pointer never goes back. Build again from the newer package; to return to old content publish it as a new version or revision."},
}

// Lookup finds a word, in any case.
func Lookup(word string) (Reason, bool) {
	for _, r := range Reasons {
		if strings.EqualFold(r.Word, word) {
			return r, true
		}
	}
	return Reason{}, false
}
