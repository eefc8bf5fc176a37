package explain

import "time"

// Facts are what is known of the cluster.
type Facts struct {
	Now     time.Time
	Update  *Update
	Nodes   []Node
	Bundles []Bundle
}

// Update is the ClusterUpdate that matters most: the active one, else the
// newest.
type Update struct {
	Name    string
	Version string
	Phase   string
	Paused  bool
	// Starting: a person has started it and no node has begun.
	Starting   bool
	PlanDigest string
	Done       int
	Total      int
	Failed     int
	Current    []string
	Blockers   []Blocker
	// BlockerCount is the number of all blockers, of which Blockers are the first.
	BlockerCount int
	// Warnings do not stop the update now, but would hold it up later.
	Warnings   []Blocker
	StartedAt  time.Time
	FinishedAt time.Time
	// Earliest and Latest time at which it is expected to be done, zero if that is
	// not known.
	Earliest, Latest time.Time
	// Away is how long the API server did not answer while nodes moved, Longest
	// without a break, in seconds.
	Away, Longest int64
}

// Blocker is one reason why the update does not go on.
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
	// Held: a person keeps updates from starting here; HeldBecause is why.
	Held         bool   `json:"held,omitempty"`
	HeldBecause  string `json:"heldBecause,omitempty"`
	Step         string `json:"step,omitempty"`
	ImagesTotal  int    `json:"imagesTotal"`
	ImagesHeld   int    `json:"imagesHeld"`
	ImagesPinned int    `json:"imagesPinned"`
	BytesTotal   int64  `json:"bytesTotal"`
	BytesDone    int64  `json:"bytesDone"`
	FromMedia    int64  `json:"bytesFromMedia"`
	FromPeers    int64  `json:"bytesFromPeers"`
}

// Bundle is one bundle as the API shows it.
type Bundle struct {
	Name     string   `json:"name"`
	Version  string   `json:"version,omitempty"`
	Digest   string   `json:"digest,omitempty"`
	Approved bool     `json:"approved"`
	Loaded   string   `json:"loaded,omitempty"`
	Found    []string `json:"found,omitempty"`
	Reason   string   `json:"reason,omitempty"`
	Message  string   `json:"message,omitempty"`
}
