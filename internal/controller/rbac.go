package controller

// What the controller may do, and why. `make generate` writes
// config/rbac/role.yaml from these lines; the bindings are in
// config/rbac/controller.yaml.
//
// What people say, and where the controller answers. It writes no spec of
// these: approving and starting is for people.
// +kubebuilder:rbac:groups=refit.dev,resources=bundles;trustpolicies;updatepools;clusterupdates;pinnedimagesets;nodeconfigs,verbs=get;list;watch
// +kubebuilder:rbac:groups=refit.dev,resources=bundles/status;trustpolicies/status;updatepools/status;clusterupdates/status;pinnedimagesets/status;nodeconfigs/status,verbs=get;update;patch
//
// External updaters of plain nodes, which administrators register.
// +kubebuilder:rbac:groups=refit.dev,resources=updaters,verbs=get;list;watch
//
// A found bundle gets an object with an empty spec, which is deleted when no node has
// the bundle any more (an admission policy sees to the emptiness, both times).
// +kubebuilder:rbac:groups=refit.dev,resources=bundles,verbs=create;delete
//
// One set per approved bundle is made here, and let go when a later update is
// complete.
// +kubebuilder:rbac:groups=refit.dev,resources=pinnedimagesets,verbs=create;patch;delete
//
// Boot images: which are wanted, by whom, and the record of every source of
// machines. For machine managers and templates themselves it has no right: who
// wants them kept fresh grants it (config/boot-images).
// +kubebuilder:rbac:groups=refit.dev,resources=bootimagestreams;bootimagepolicies;machinesources,verbs=get;list;watch
// +kubebuilder:rbac:groups=refit.dev,resources=bootimagestreams/status;bootimagepolicies/status;machinesources/status,verbs=get;update;patch
// +kubebuilder:rbac:groups=refit.dev,resources=machinesources,verbs=create;patch;delete
//
// OS images: what people want, the builds of it, and the Jobs that build
// Containerfiles, which are in a namespace of their own with the secrets they push
// with. An admission policy limits the Jobs to what imagebuild and fetching make.
// +kubebuilder:rbac:groups=refit.dev,resources=osimages;osbuilds,verbs=get;list;watch
// +kubebuilder:rbac:groups=refit.dev,resources=osimages/status;osbuilds/status,verbs=get;update;patch
// +kubebuilder:rbac:groups=refit.dev,resources=osbuilds,verbs=create;delete
// +kubebuilder:rbac:groups=batch,namespace=refit-builds,resources=jobs,verbs=get;create;delete
// +kubebuilder:rbac:groups="",namespace=refit-builds,resources=configmaps,verbs=get;create;delete
//
// Cordon and uncordon, with their mark.
// +kubebuilder:rbac:groups="",resources=nodes,verbs=get;list;watch;patch
//
// Drain: which pods are on a node, which budget protects them, the Eviction
// API. There is no right to delete pods: budgets are never gone around.
// +kubebuilder:rbac:groups="",resources=pods,verbs=get;list
// +kubebuilder:rbac:groups="",resources=pods/eviction,verbs=create
// +kubebuilder:rbac:groups=policy,resources=poddisruptionbudgets,verbs=get;list
//
// Gate: webhooks that fail closed and where their backends run, and which APIs
// are in use that the target does not serve (one metric of the API server).
// +kubebuilder:rbac:groups=admissionregistration.k8s.io,resources=validatingwebhookconfigurations;mutatingwebhookconfigurations,verbs=get;list
// +kubebuilder:rbac:groups=discovery.k8s.io,resources=endpointslices,verbs=get;list
// +kubebuilder:rbac:groups="",resources=namespaces,verbs=get
// +kubebuilder:rbac:urls=/metrics,verbs=get
//
// Metrics: whose token does a reader send, and may that user get /metrics?
// +kubebuilder:rbac:groups=authentication.k8s.io,resources=tokenreviews,verbs=create
// +kubebuilder:rbac:groups=authorization.k8s.io,resources=subjectaccessreviews,verbs=create
//
// Interlocks that pause other controllers while a node is updated, and are removed
// afterwards: an annotation on the Machine of Cluster API, a budget of Karpenter's
// NodePool. Clusters without these kinds do not use the rights.
// +kubebuilder:rbac:groups=cluster.x-k8s.io,resources=machines,verbs=get;list;patch
// +kubebuilder:rbac:groups=karpenter.sh,resources=nodepools,verbs=get;list;patch
//
// Events.
// +kubebuilder:rbac:groups="";events.k8s.io,resources=events,verbs=create;patch
//
// The objects that nodes read are in one namespace; in others no program reads them. A
// right of the whole cluster is found first: RBAC compares a request that only a
// RoleBinding allows with the RoleBinding of every node.
// +kubebuilder:rbac:groups=refit.dev,resources=nodeupdates;contents,verbs=get;list;watch;create;patch;delete
//
// Each node is granted its own NodeUpdate (NodeRightsGranter); the admission policy
// refit-controller-grants limits the grants to that. Without bind and escalate, the API
// server would compare each grant with all rights of the controller there. It finds them
// in the RoleBindings of all nodes.
// +kubebuilder:rbac:groups=rbac.authorization.k8s.io,namespace=refit-nodes,resources=roles;rolebindings,verbs=list;create
// +kubebuilder:rbac:groups=rbac.authorization.k8s.io,namespace=refit-nodes,resources=roles,verbs=bind;escalate
//
// Files of a NodeConfig may come from ConfigMaps of that namespace. There is no
// way from a NodeConfig to a Secret. What a bundle has brought into the cluster is
// remembered in such ones. For those objects themselves it has no right: who wants
// them applied grants it.
// +kubebuilder:rbac:groups="",namespace=refit-nodes,resources=configmaps,verbs=get;create;patch
//
// The controller's own key (one Secret by name) and its leader election.
// +kubebuilder:rbac:groups="",namespace=refit-system,resources=secrets,verbs=create
// +kubebuilder:rbac:groups="",namespace=refit-system,resources=secrets,resourceNames=refit-controller-key,verbs=get
// +kubebuilder:rbac:groups=coordination.k8s.io,namespace=refit-system,resources=leases,verbs=create
// +kubebuilder:rbac:groups=coordination.k8s.io,namespace=refit-system,resources=leases,resourceNames=refit-controller,verbs=get;update;patch
//
// The second controller, once a second node has refit's image: the number of replicas of
// its own Deployment, nothing else of it.
// +kubebuilder:rbac:groups=apps,namespace=refit-system,resources=deployments/scale,resourceNames=refit-controller,verbs=get;update
//
// Is this a kubeadm cluster, and at which version does kubeadm believe it is?
// +kubebuilder:rbac:groups="",namespace=kube-system,resources=configmaps,resourceNames=kubeadm-config,verbs=get
//
// Image tracks: what people say of them, and what their workloads run. Changing a
// workload is not among the rights: who wants a track to write binds the
// ClusterRole refit-image-writer in that namespace (config/rbac/tracks.yaml). Pull
// secrets of tracks are in the namespace of builds.
// +kubebuilder:rbac:groups=refit.dev,resources=imagetracks,verbs=get;list;watch
// +kubebuilder:rbac:groups=refit.dev,resources=imagetracks/status,verbs=get;update;patch
// +kubebuilder:rbac:groups=apps,resources=deployments;daemonsets;statefulsets,verbs=get;list
// +kubebuilder:rbac:groups=batch,resources=cronjobs,verbs=get;list
// +kubebuilder:rbac:groups="",namespace=refit-builds,resources=secrets,verbs=get
