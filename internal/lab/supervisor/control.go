package supervisor

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"time"
)

// Operations of the supervisor.
const (
	OpStatus  = "status"  // how every node is
	OpOn      = "on"      // switch Node on, if it is off
	OpCrash   = "crash"   // kill pid 1 of Node; power returns
	OpOutside = "outside" // what tried to leave
	OpQuit    = "quit"    // kill all nodes and end
)

// CutDisk is where the copy of a node's disk is put from which it starts the next
// time.
func CutDisk(disk string) string { return disk + ".cut" }

// Request is one question to the supervisor.
type Request struct {
	Op   string
	Node string
}

// Reply is its answer.
type Reply struct {
	Error   string `json:",omitempty"`
	Nodes   []NodeStatus
	Outside Outside
}

// NodeStatus is how a node is, seen from its mains switch.
type NodeStatus struct {
	Name  string
	On    bool
	PID   int // of its pid 1, as the machine counts
	Boots int
	Since time.Time // of the last change
	Last  string    // how pid 1 ended the last time, or why it could not start
}

// Outside counts packets to addresses outside of the node, pod and service networks.
type Outside struct {
	Packets   int // IP packets to an address outside
	Lost      int // packets that the observer could not inspect: unknown
	Questions int // name questions for an image host
	Details   []Attempt
	AllNames  map[string]int // every question, also for other names
}

// Attempt is one kind of packet or question, and how often it came.
type Attempt struct {
	From  string // address of the sender
	To    string // address and port, or the name asked for
	Kind  string // "tcp", "udp", "icmp", ... or "dns"
	Count int
	First time.Time
	Last  time.Time
}

// Call asks the supervisor of the lab in dir.
func Call(ctx context.Context, dir string, q Request) (*Reply, error) {
	var d net.Dialer
	c, err := d.DialContext(ctx, "unix", filepath.Join(dir, SocketName))
	if err != nil {
		return nil, fmt.Errorf("the lab's supervisor does not answer: %w; if it was killed, take the lab down and up again", err)
	}
	defer c.Close()
	if deadline, ok := ctx.Deadline(); ok {
		_ = c.SetDeadline(deadline)
	}
	if err := json.NewEncoder(c).Encode(q); err != nil {
		return nil, err
	}
	r := &Reply{}
	if err := json.NewDecoder(bufio.NewReader(c)).Decode(r); err != nil {
		return nil, fmt.Errorf("the lab's supervisor hung up during %q: %w", q.Op, err)
	}
	if r.Error != "" {
		return nil, errors.New(r.Error)
	}
	return r, nil
}
