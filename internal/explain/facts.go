package explain

import "time"

// Facts are the observed state of the cluster.
type Facts struct {
	Now     time.Time
	Update  *Update
	Nodes   []Node
	Bundles []Bundle
}

// Update is the active ClusterUpdate, else the newest.
type Update struct {
	Name    string
	Version string
	Phase   string
	Paused  bool
	// Starting is true after refit apply, until the first node starts.
	Starting   bool
	PlanDigest string
	Done       int
	Total      int
	Failed     int
	Current    []string
	Blockers   []Blocker
	// Hop of Hops is the current one, from 1, and HopVersion what it leads to; 0 without hops.
	// BetweenHops is true if it has not started and another one is done.
	Hop, Hops   int
	HopVersion  string
	BetweenHops bool
	// BlockerCount is the number of all blockers, of which Blockers are the first.
	BlockerCount int
	// Warnings do not stop the update now, but would stop it later.
	Warnings   []Blocker
	StartedAt  time.Time
	FinishedAt time.Time
	// Earliest and Latest are the forecast of its end, zero if unknown.
	Earliest, Latest time.Time
	// FromLab says that the forecast is by the times of refit's lab.
	FromLab bool
	// Away is how long the API server was unavailable while nodes were updated, Longest
	// the longest stretch, in seconds.
	Away, Longest int64
}

// Blocker is one reason why the update waits.
type Blocker struct {
	Reason  string    `json:"reason"`
	Message string    `json:"message"`
	Fix     string    `json:"fix,omitempty"`
	Object  string    `json:"object,omitempty"`
	Since   time.Time `json:"since,omitzero"`
}

// Node is one node as the API shows it.
type Node struct {
	Name          string `json:"name"`
	Role          string `json:"role"`
	Ready         bool   `json:"ready"`
	Unschedulable bool   `json:"unschedulable,omitempty"`
	Kubelet       string `json:"kubelet"`
	Agent         string `json:"agent,omitempty"`
	Phase         string `json:"phase"`
	Message       string `json:"message,omitempty"`
	// OnHold is true if an administrator put the node on hold; HeldBecause has the reason.
	OnHold       bool   `json:"onHold,omitempty"`
	OnHoldReason string `json:"onHoldReason,omitempty"`
	// Step runs, or ran last. StepsDone of StepsTotal steps are done in the run that the
	// controller permits, or in the last one; both are 0 before, and while a run is undone.
	Step         string `json:"step,omitempty"`
	StepsDone    int    `json:"stepsDone,omitempty"`
	StepsTotal   int    `json:"stepsTotal,omitempty"`
	ImagesTotal  int    `json:"imagesTotal"`
	ImagesReady  int    `json:"imagesReady"`
	ImagesPinned int    `json:"imagesPinned"`
	BytesTotal   int64  `json:"bytesTotal"`
	BytesDone    int64  `json:"bytesDone"`
	FromMedia    int64  `json:"bytesFromMedia"`
	FromPeers    int64  `json:"bytesFromPeers"`
	FromRegistry int64  `json:"bytesFromRegistry,omitempty"`
}

// Bundle is one bundle as the API shows it.
type Bundle struct {
	Name     string `json:"name"`
	Version  string `json:"version,omitempty"`
	Digest   string `json:"digest,omitempty"`
	Approved bool   `json:"approved"`
	Loaded   string `json:"loaded,omitempty"`
	// Use is what nodes hold an approved bundle for: Runs, Update, Rollback, Held, Waits,
	// or Released. FreesBytes is at most what each node frees without it.
	Use        string   `json:"use,omitempty"`
	FreesBytes int64    `json:"freesBytes,omitempty"`
	Locations  []string `json:"locations,omitempty"`
	Reason     string   `json:"reason,omitempty"`
	Message    string   `json:"message,omitempty"`
}
