package v1alpha1

// Condition types.
const (
	ConditionReady       = "Ready"
	ConditionReconciling = "Reconciling"
	ConditionStalled     = "Stalled"
	ConditionApproved    = "Approved"    // Bundle
	ConditionLoaded      = "Loaded"      // Bundle
	ConditionPlanned     = "Planned"     // ClusterUpdate
	ConditionGateOpen    = "GateOpen"    // ClusterUpdate
	ConditionImagesReady = "ImagesReady" // NodeUpdate
	ConditionDegraded    = "Degraded"    // NodeUpdate
	ConditionCovered     = "Covered"     // InPlacePlan
	ConditionSkewed      = "Skewed"      // ImageTrack
	ConditionNewEnough   = "NewEnough"   // MachineSource
	// ConditionAuthority on a MachineSource: the first-boot configuration of its
	// machines trusts the server that it fetches from.
	ConditionAuthority = "AuthorityCurrent"
	// ConditionMachineImage on a Machine of Cluster API or OpenShift that has not
	// joined: False if it cannot because of its boot image.
	ConditionMachineImage = "refit.dev/BootImageNewEnough"
)

// Reason words. Each has a section in docs/reference/reasons.md with its cause and
// fix; `refit explain WORD` prints it.
const (
	ReasonAsExpected            = "AsExpected"
	ReasonAwaitingApproval      = "AwaitingApproval"
	ReasonApprovedByDigest      = "ApprovedByDigest"
	ReasonApprovedByKey         = "ApprovedByKey"
	ReasonDigestMismatch        = "DigestMismatch"
	ReasonBundleUnreadable      = "BundleUnreadable"
	ReasonBundleCorrupt         = "BundleCorrupt"
	ReasonBundleNotFound        = "BundleNotFound"
	ReasonBundleNotApproved     = "BundleNotApproved"
	ReasonSignaturesRequired    = "SignaturesRequired"
	ReasonAgentOutdated         = "AgentOutdated"
	ReasonApprovalNotFound      = "ApprovalNotFound"
	ReasonApprovalUnreadable    = "ApprovalUnreadable"
	ReasonRunNotApproved        = "RunNotApproved"
	ReasonConfigNotApproved     = "ConfigNotApproved"
	ReasonBundleRevoked         = "BundleRevoked"
	ReasonBundleTooNew          = "BundleTooNew"
	ReasonConstraintNotMet      = "ConstraintNotMet"
	ReasonImageRefused          = "ImageRefused"
	ReasonConfigConflict        = "ConfigConflict"
	ReasonConfigInvalid         = "ConfigInvalid"
	ReasonConfigWaiting         = "ConfigWaiting"
	ReasonCopying               = "Copying"
	ReasonLoading               = "Loading"
	ReasonNoSource              = "NoSource"
	ReasonPartMissing           = "PartMissing"
	ReasonBaseContentMissing    = "BaseContentMissing"
	ReasonPortInUse             = "PortInUse"
	ReasonInsufficientSpace     = "InsufficientSpace"
	ReasonImagesMissing         = "ImagesMissing"
	ReasonPinsIgnored           = "PinsIgnored"
	ReasonNoLocalCopy           = "NoLocalCopy"
	ReasonSnapshotMissing       = "SnapshotMissing"
	ReasonSnapshotUnusable      = "SnapshotUnusable"
	ReasonColdStartCheckMissing = "ColdStartCheckMissing"
	ReasonImageNotPinned        = "ImageNotPinned"
	ReasonPayloadMissing        = "PayloadMissing"
	ReasonNodeJoining           = "NodeJoining"
	ReasonStoreReplaced         = "StoreReplaced"
	ReasonReleased              = "Released"
	ReasonAgentMissing          = "AgentMissing"
	ReasonAgentHeartbeatLost    = "AgentHeartbeatLost"
	ReasonNodeNotReady          = "NodeNotReady"
	ReasonNodeNotFound          = "NodeNotFound"
	ReasonNodeLost              = "NodeLost"
	ReasonNodePressure          = "NodePressure"
	ReasonForeignCordon         = "ForeignCordon"
	ReasonEtcdUnhealthy         = "EtcdUnhealthy"
	ReasonEtcdSpace             = "EtcdSpace"
	ReasonQuorumAtRisk          = "QuorumAtRisk"
	ReasonCertificateExpires    = "CertificateExpires"
	ReasonClockSkew             = "ClockSkew"
	ReasonAPIRemoved            = "APIRemoved"
	ReasonWebhookBlocks         = "WebhookBlocks"
	ReasonImagePullAlways       = "ImagePullAlways"
	ReasonMovingTag             = "MovingTag"
	ReasonTagResolver           = "TagResolver"
	ReasonCheckUnknown          = "CheckUnknown"
	ReasonRiskExpired           = "RiskExpired"
	ReasonRiskNotAcceptable     = "RiskNotAcceptable"
	ReasonFactUnknown           = "FactUnknown"
	ReasonNodeInTwoPools        = "NodeInTwoPools"
	ReasonVersionSkew           = "VersionSkew"
	ReasonOlderThanRunning      = "OlderThanRunning"
	ReasonNothingToDo           = "NothingToDo"
	ReasonNoUpdater             = "NoUpdater"
	ReasonAnotherUpdateRunning  = "AnotherUpdateRunning"
	ReasonPlanChanged           = "PlanChanged"
	ReasonAwaitingStart         = "AwaitingStart"
	ReasonPaused                = "Paused"
	ReasonHopUnfit              = "HopUnfit"
	ReasonDraining              = "Draining"
	ReasonDrainBlocked          = "DrainBlocked"
	ReasonDisruptionBudget      = "DisruptionBudget"
	ReasonPodStuckTerminating   = "PodStuckTerminating"
	ReasonUpdating              = "Updating"
	ReasonSettling              = "Settling"
	ReasonStepFailed            = "StepFailed"
	ReasonKernelArguments       = "KernelArguments"
	ReasonDangerousArguments    = "DangerousKernelArguments"
	ReasonHealthCheckFailed     = "HealthCheckFailed"
	ReasonHealthCheckForbidden  = "HealthCheckForbidden"
	ReasonHealthCheckInvalid    = "HealthCheckInvalid"
	ReasonOSNotStaged           = "OSNotStaged"
	ReasonOSStaging             = "OSStaging"
	ReasonDrifted               = "Drifted"
	ReasonDriftRepaired         = "DriftRepaired"
	ReasonOSRolledBack          = "OSRolledBack"
	ReasonOSUnhealthy           = "OSUnhealthy"
	ReasonOSUnsupported         = "OSUnsupported"
	ReasonStepDeadline          = "StepDeadline"
	ReasonUndoArmed             = "UndoArmed"
	ReasonUndoneByDeadline      = "UndoneByDeadline"
	ReasonJournalCorrupt        = "JournalCorrupt"
	ReasonJournalUnreadable     = "JournalUnreadable"
	ReasonJournalUnwritable     = "JournalUnwritable"
	ReasonFileSystemReadOnly    = "FileSystemReadOnly"
	ReasonStateFileDamaged      = "StateFileDamaged"
	ReasonStateNotWritable      = "StateNotWritable"
	ReasonAgentConfigInvalid    = "AgentConfigInvalid"
	ReasonColdStartCheckFailed  = "ColdStartCheckFailed"
	ReasonColdStartCheckOff     = "ColdStartCheckOff"
	ReasonUndoing               = "Undoing"
	ReasonUndone                = "Undone"
	ReasonNotReversible         = "NotReversible"
	ReasonHalted                = "Halted"
	ReasonUpdated               = "Updated"
	ReasonControlPlaneUnhealthy = "ControlPlaneUnhealthy"
	ReasonInvalidKey            = "InvalidKey"
	ReasonNodeInNoPool          = "NodeInNoPool"
	ReasonManifestChanged       = "ManifestChanged"
	ReasonDryRunFailed          = "DryRunFailed"
	ReasonBudgetSpent           = "BudgetSpent"
	ReasonTagConflict           = "TagConflict"

	// Cluster resources of a bundle.
	ReasonResourcesPending = "ResourcesPending"
	// Boot images.
	ReasonStreamUnusable         = "StreamUnusable"
	ReasonStreamNotStamped       = "StreamNotStamped"
	ReasonStreamNotFetched       = "StreamNotFetched"
	ReasonBootImageCanary        = "BootImageCanary"
	ReasonBootImageCanaryFailed  = "BootImageCanaryFailed"
	ReasonBootImageContested     = "BootImageContested"
	ReasonBootImageCustom        = "BootImageCustom"
	ReasonBootImageDeclared      = "BootImageDeclared"
	ReasonBootImageExcluded      = "BootImageExcluded"
	ReasonBootImageNewer         = "BootImageNewer"
	ReasonBootImageNotUploaded   = "BootImageNotUploaded"
	ReasonBootImageOutdated      = "BootImageOutdated"
	ReasonBootImageNotChecked    = "BootImageNotChecked"
	ReasonBootImagePolicyDeleted = "BootImagePolicyDeleted"
	ReasonBootImageOwned         = "BootImageOwned"
	ReasonBootImageRefused       = "BootImageRefused"
	ReasonBootImageRolledBack    = "BootImageRolledBack"
	ReasonWouldReplaceMachines   = "WouldReplaceMachines"
	ReasonBootImageStaged        = "BootImageStaged"
	ReasonBootImageTooFresh      = "BootImageTooFresh"
	ReasonBootImageTooOld        = "BootImageTooOld"
	ReasonBootImageUnknown       = "BootImageUnknown"
	ReasonBootImageUpdateRunning = "BootImageUpdateRunning"
	ReasonBootImageWaived        = "BootImageWaived"
	ReasonBootImageWritten       = "BootImageWritten"
	ReasonUserDataUnusable       = "UserDataUnusable"
	ReasonAuthorityContested     = "AuthorityContested"
	ReasonAuthorityOutdated      = "AuthorityOutdated"
	ReasonAuthorityUnusable      = "AuthorityUnusable"

	// Cluster API.
	ReasonReplacementFallback = "ReplacementFallback"
	ReasonClusterUnreachable  = "ClusterUnreachable"
	ReasonMachineChanged      = "MachineChanged"
	ReasonUpdaterUnreachable  = "UpdaterUnreachable"

	// Of OS images.
	ReasonOSImageInvalid = "OSImageInvalid"
	// ReasonOSBaseNotPinned: the base of an OS image that is built without a registry is
	// in no bundle on the nodes.
	ReasonOSBaseNotPinned = "OSBaseNotPinned"
	ReasonImageBuilding   = "ImageBuilding"
	ReasonOSImageAbsent   = "OSImageAbsent"
	// ReasonOSImageNotFetched: refit can read the image from the registry, but the
	// container runtime of a node cannot fetch it.
	ReasonOSImageNotFetched = "OSImageNotFetched"
	ReasonImageBuildFailed  = "ImageBuildFailed"
	// Findings about an OS image, before any node boots it.
	ReasonOSImageUnreadable      = "OSImageUnreadable"
	ReasonOSImageNotExtension    = "OSImageNotExtension"
	ReasonOSImageBound           = "OSImageBoundImages"
	ReasonOSImageArchitecture    = "OSImageArchitecture"
	ReasonOSImageNotBootable     = "OSImageNotBootable"
	ReasonOSImageKernel          = "OSImageKernel"
	ReasonOSImageInitramfs       = "OSImageInitramfsMissing"
	ReasonOSImageWithoutSystemd  = "OSImageWithoutSystemd"
	ReasonOSImageKubelet         = "OSImageKubeletMissing"
	ReasonOSImageKubeletSkew     = "OSImageKubeletSkew"
	ReasonOSImageKubeletUnknown  = "OSImageKubeletUnknown"
	ReasonOSImageRuntime         = "OSImageRuntimeMissing"
	ReasonOSImageAgent           = "OSImageAgentMissing"
	ReasonOSImageUnit            = "OSImageUnitMissing"
	ReasonOSImageTooLarge        = "OSImageTooLarge"
	ReasonOSImageSignaturePolicy = "OSImageSignaturePolicy"
	ReasonOSImageBootFallback    = "OSBootFallbackMissing"
	ReasonOSImageSELinux         = "OSImageSELinuxMissing"
	ReasonBuildInterrupted       = "BuildInterrupted"
	// ReasonImageBuilt, ReasonImageReused and ReasonImageNotBooted are for events: a
	// build succeeded; no build was needed; nodes do not need to boot its result.
	ReasonImageBuilt     = "ImageBuilt"
	ReasonImageReused    = "ImageReused"
	ReasonImageNotBooted = "ImageNotBooted"

	// Of image tracks.
	ReasonImageNeedsApproval   = "ImageNeedsApproval"
	ReasonImageBlocked         = "ImageBlocked"
	ReasonVersionsSkipped      = "VersionsSkipped"
	ReasonManifestOutdated     = "ManifestOutdated"
	ReasonImageSkewed          = "ImageSkewed"
	ReasonImagePreloading      = "ImagePreloading"
	ReasonImageRolling         = "ImageRolling"
	ReasonImageProposed        = "ImageProposed"
	ReasonWorkloadBlocked      = "WorkloadBlocked"
	ReasonStaticPodNotReady    = "StaticPodNotReady"
	ReasonStaticPodRefused     = "StaticPodRefused"
	ReasonTrackInvalid         = "TrackInvalid"
	ReasonPollingRegistry      = "PollingRegistry"
	ReasonRegistryUnreachable  = "RegistryUnreachable"
	ReasonRegistryRateLimited  = "RegistryRateLimited"
	ReasonRegistryUnauthorized = "RegistryUnauthorized"
	// ReasonRegistryContentMissing and ReasonRegistryContentWrong: a registry answers, and
	// has not what was pushed.
	ReasonRegistryContentMissing = "RegistryContentMissing"
	ReasonRegistryContentWrong   = "RegistryContentWrong"
	ReasonTagDeleted             = "TagDeleted"

	// Of the rollout.
	ReasonVersionReverted      = "VersionReverted"
	ReasonNodeOnHold           = "NodeOnHold"
	ReasonOutsideWindow        = "OutsideWindow"
	ReasonWindowInvalid        = "WindowInvalid"
	ReasonSoaking              = "Soaking"
	ReasonLeavingLoadBalancers = "LeavingLoadBalancers"
	ReasonRetrying             = "Retrying"
	ReasonUndoFailed           = "UndoFailed"
	ReasonEtcdQuorum           = "EtcdQuorum"
	ReasonAddonsNotReady       = "AddonsNotReady"
	ReasonAPIServerUnavailable = "APIServerUnavailable"
	ReasonEtcdNotDowngraded    = "EtcdNotDowngraded"
)

// Reason words of image tags: why a publisher may not push
// (internal/imagetag/publish).
const (
	ReasonBuildNotGreater     = "BuildNotGreater"
	ReasonCaseDiffers         = "CaseDiffers"
	ReasonImageUnapproved     = "ImageUnapproved"
	ReasonPlatformsLost       = "PlatformsLost"
	ReasonTagWouldRegress     = "TagWouldRegress"
	ReasonPointerUnknown      = "PointerUnknown"
	ReasonRevNotBumped        = "RevNotBumped"
	ReasonSchemeUnfit         = "SchemeUnfit"
	ReasonTagIllegal          = "TagIllegal"
	ReasonTagVersionMismatch  = "TagVersionMismatch"
	ReasonTagNotPlanned       = "TagNotPlanned"
	ReasonTagTaken            = "TagTaken"
	ReasonVersionUnknown      = "VersionUnknown"
	ReasonReleaseWouldRegress = "ReleaseWouldRegress"
)

// Labels and annotations that refit puts on objects that are not its own.
const (
	// AnnotationCordonedBy marks a cordon as refit's own; only such are removed.
	AnnotationCordonedBy = "refit.dev/cordoned-by"
	// LabelHealthChecks, "true" on a ClusterRole, grants its rules to the controller, so that
	// health checks of UpdatePools may read those kinds.
	LabelHealthChecks = "refit.dev/aggregate-to-health-checks"
	// AnnotationExcluded says since when refit's own label keeps a node out of load balancers,
	// in RFC 3339; only such a label is removed.
	AnnotationExcluded = "refit.dev/excluded-from-load-balancers"
	// AnnotationUpdating marks a node that an update has started on, also one
	// that a person had cordoned before: "<uid> <attempt> <RFC 3339 time>".
	AnnotationUpdating = "refit.dev/updating"
	// AnnotationUpdated is how the last update of a node went: "<uid> <RFC 3339
	// start> <RFC 3339 end>", by the controller's clock. It stays: soaks are counted
	// and durations learned from it, and it is how a node is known that comes back
	// at its old version.
	AnnotationUpdated = "refit.dev/updated"
	// TaintImagesNotReady keeps pods off a node that has not yet pinned all its images.
	// A kubelet registers with it (registerWithTaints), or the controller sets it, with
	// the value TaintByPool, where a pool requires it (startupTaint).
	TaintImagesNotReady = "refit.dev/images-not-ready"
	TaintByPool         = "pool"
	// AnnotationAdmitted on a Node is the public key of the agent that had proven the
	// node's images when its startup taint was removed; another key means another store.
	AnnotationAdmitted = "refit.dev/admitted"
	// AnnotationDrill on a NodeUpdate asks its agent for a drill: the node restarts
	// at once and puts its images back before its kubelet starts. The value is a new
	// one for each drill.
	AnnotationDrill = "refit.dev/drill"
	// AnnotationRestoreDrill on a NodeUpdate asks its agent to rehearse a restore of the
	// datastore. The value is a new one for each rehearsal.
	AnnotationRestoreDrill = "refit.dev/restore-drill"
	// AnnotationHold on a Node keeps updates from starting on it; its value is the
	// reason that a person gave. A node that has started is finished.
	AnnotationHold = "refit.dev/hold"
	// AnnotationAllowDelete, "true" on a ClusterUpdate that moves nodes, lets it
	// be deleted: no further node starts, and a node that runs finishes.
	AnnotationAllowDelete = "refit.dev/allow-delete"
	// AnnotationInterlock has the changes of refit on an object of an interlock
	// (autoscaler, machine health check), with the previous values. It is a JSON map from
	// the field to {by, before, set}.
	AnnotationInterlock = "refit.dev/interlock"
	// LabelInterlock is on objects with AnnotationHeld that are not nodes, so that
	// they are found again.
	LabelInterlock = "refit.dev/interlock"
	// AnnotationInterlockUntil is when a mark expires if refit stops renewing it.
	AnnotationInterlockUntil = "refit.dev/interlock-until"
	// AnnotationApply with the value ApplyBeforeNodes on an object in a bundle makes
	// refit apply it before the first node moves.
	AnnotationApply  = "refit.dev/apply"
	ApplyBeforeNodes = "before-nodes"
	// AnnotationEvict, "true" on a pod that no controller recreates, allows its
	// eviction.
	AnnotationEvict = "refit.dev/evict"
	// AnnotationFoundDigest is the digest for which the controller created a Bundle.
	AnnotationFoundDigest = "refit.dev/found-digest"
	// AnnotationFoundOn is the node that such a bundle was found on first.
	AnnotationFoundOn = "refit.dev/found-on"
	// AnnotationRebuild on an OSImage has a build that failed tried again, once for
	// every new value.
	AnnotationRebuild = "refit.dev/rebuild"
	// AnnotationBeforeStock on an UpdatePool that `refit rollback --stock` returned to the
	// stock image of its nodes is the OSImage that it had before.
	AnnotationBeforeStock = "refit.dev/os-image-before-stock"
	// LabelBuildSecret with the value "true" on a Secret of refit-builds lets a RUN of
	// a Containerfile mount it.
	LabelBuildSecret = "refit.dev/build-secret"
	// LabelOSImage and LabelOSBuild on the output of a build name its OSImage and
	// OSBuild.
	LabelOSImage = "refit.dev/os-image"
	LabelOSBuild = "refit.dev/os-build"
	// LabelPlatform on a Job and its pod is the platform it builds, for example
	// linux-arm64.
	LabelPlatform = "refit.dev/platform"
	// LabelManagedBy with the value of FieldOwnerController marks objects that the
	// controller created and may delete.
	LabelManagedBy = "app.kubernetes.io/managed-by"
	// LabelTrack on a PinnedImageSet names the ImageTrack that created it.
	LabelTrack = "refit.dev/track"
	// AnnotationRuns on a workload names, for people, the builds behind the digests in
	// its template: the long tags, by container.
	AnnotationRuns = "refit.dev/runs"
	// AnnotationDrainedFor on a Node is the ImageTrack that has it drained, to replace a pod
	// that the node needs (spec.drain).
	AnnotationDrainedFor = "refit.dev/drained-for"
	// AnnotationUpdatesPrefix and the name of an ImageTrack: on a Node, how urgent the image
	// is that its pods do not run yet, and its long tag (spec.nodeMarks).
	AnnotationUpdatesPrefix = "updates.refit.dev/"
	// LabelFirstContact marks the nodes that got refit's image by hand, and others that
	// have it, so that the controller is scheduled where its image is.
	LabelFirstContact = "refit.dev/first-contact"
	// AnnotationStandby on the controller's pods with the value StandbyWhenImagePresent:
	// the controller scales its Deployment to two when a second node has refit's image.
	// refit install sets it.
	AnnotationStandby       = "refit.dev/standby"
	StandbyWhenImagePresent = "WhenImagePresent"
	// ControllerDeployment is the name of the controller's Deployment.
	ControllerDeployment = "refit-controller"
	// LabelComponent marks refit's own pods.
	LabelComponent = "refit.dev/component"
	// AnnotationFallback on a MachineDeployment, KubeadmControlPlane, MachineSet or
	// Cluster of Cluster API: Preserve or Replace, what becomes of machines whose
	// change no updater covers.
	AnnotationFallback = "refit.dev/in-place-fallback"
	// AnnotationNewMachinesOnly on the same objects lists fields, separated by commas,
	// that only affect new machines, for example infrastructure/spec/image.
	AnnotationNewMachinesOnly = "refit.dev/new-machines-only"
	// AnnotationKubeconfig on a Cluster of Cluster API names the Secret, in its
	// namespace, with which refit asks that cluster; without it CLUSTER-kubeconfig.
	AnnotationKubeconfig = "refit.dev/kubeconfig-secret"
	// AnnotationRemediationHeld on a Machine marks the skip-remediation annotation as
	// refit's own, and is its expiry: RFC 3339.
	AnnotationRemediationHeld = "refit.dev/remediation-held-until"
	// LabelMachine on a ClusterUpdate is the UID of the Machine it was created for, and
	// AnnotationMachine its namespace/name in the management cluster.
	LabelMachine      = "refit.dev/machine"
	AnnotationMachine = "refit.dev/machine"
	// AnnotationWantedVersion on a machine manager is the Kubernetes version that it
	// is to move to together with a fresh boot image (mode Piggyback).
	AnnotationWantedVersion = "refit.dev/wanted-version"
	// LabelBootImageSource on a template is the UID of the MachineSource for which refit
	// created it; AnnotationClonedFrom is the first template in its line of clones.
	LabelBootImageSource = "refit.dev/boot-image-source"
	AnnotationClonedFrom = "refit.dev/cloned-from"
	// FieldOwnerController, FieldOwnerAgent and FieldOwnerCLI are the
	// server-side apply owners.
	FieldOwnerController = "refit-controller"
	FieldOwnerAgent      = "refit-agent"
	FieldOwnerCLI        = "refit"
	FieldOwnerTracks     = "refit-controller-tracks"
	// FieldOwnerRun is the owner of NodeUpdate.spec.run for every controller that permits
	// a run: fields that the next one omits are removed.
	FieldOwnerRun = FieldOwnerController + "-run"
	// FieldOwnerReboot is the owner of NodeUpdate.spec.reboot.
	FieldOwnerReboot = FieldOwnerController + "-reboot"
	// FieldOwnerStage is the owner of NodeUpdate.spec.stage.
	FieldOwnerStage = FieldOwnerController + "-stage"
	// TrackRun is the prefix of the names of runs for an ImageTrack; no ClusterUpdate
	// can have such a name.
	TrackRun = "ImageTrack/"
)
