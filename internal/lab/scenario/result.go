package scenario

// Result is what `refit-lab demo --result FILE` writes. Every field is
// measured.
type Result struct {
	// From and To are the cluster's Kubernetes versions before and after.
	From string `json:"from"`
	To   string `json:"to"`
	// Nodes, sorted by name.
	Nodes []Node `json:"nodes"`
	// RegistryRequests counts packets from nodes to anything outside node, pod
	// and service networks, plus DNS questions for image hosts.
	RegistryRequests int64 `json:"registryRequests"`
	// RuntimeLookUps counts questions for the name of an image host that CRI-O asks
	// for each pull from the node itself; they are no requests.
	RuntimeLookUps int64    `json:"runtimeLookUps,omitempty"`
	Workload       Workload `json:"workload"`
	// APIUnavailableSeconds is how long GET /readyz did not answer ok.
	APIUnavailableSeconds float64 `json:"apiUnavailableSeconds"`
	// Phases are wall-clock seconds.
	Phases map[string]float64 `json:"phases"`
	// PlanDigest that was shown, approved and run.
	PlanDigest string `json:"planDigest"`
	// BundleDigest and BundleBytes of the stick.
	BundleDigest string `json:"bundleDigest"`
	BundleBytes  int64  `json:"bundleBytes"`
	// Problems are the reasons why OK is false.
	Problems []string `json:"problems,omitempty"`
	OK       bool     `json:"ok"`
}

// Node is one node of a Result.
type Node struct {
	Name    string `json:"name"`
	Runtime string `json:"runtime"`
	// Before and After are kubelet versions as the API server reports them.
	Before string `json:"before"`
	After  string `json:"after"`
	// Images is how many of the bundle's image names the node's CRI lists with
	// the right digest, Pinned how many of these it calls pinned.
	Images int `json:"images"`
	Pinned int `json:"pinned"`
	// NotNeeded are images of the bundle that only nodes of another role start.
	NotNeeded       int   `json:"notNeeded"`
	BytesFromMedium int64 `json:"bytesFromStick"`
	BytesFromPeers  int64 `json:"bytesFromPeers"`
}

// Workload says what the update did to the pods that ran meanwhile.
type Workload struct {
	// Budget is the PodDisruptionBudget's minAvailable.
	Budget int `json:"budget"`
	// MinReady is the lowest number of ready pods seen while the API answered.
	MinReady int `json:"minReady"`
	// Samples is the number of samples.
	Samples int `json:"samples"`
}
