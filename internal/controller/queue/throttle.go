package queue

import "time"

// smallCluster is up to how many nodes nothing is saved.
const smallCluster = 200

// maxThrottle is how long anything waits.
const maxThrottle = 10 * time.Second

// ThrottleInterval is how long something rests in a cluster of so many nodes.
func ThrottleInterval(nodes int) time.Duration {
	if nodes <= smallCluster {
		return 0
	}
	return min(maxThrottle, max(time.Second, time.Duration(nodes)*time.Millisecond))
}

// minDebounce is how long events are collected in a small cluster.
const minDebounce = 200 * time.Millisecond

// DebounceDelay is how long events of single nodes are collected before a reconcile of so
// many nodes: up to a second.
func DebounceDelay(nodes int) time.Duration {
	return min(time.Second, max(minDebounce, time.Duration(nodes)*time.Second/30000))
}

// Throttle remembers when what was due last. For one goroutine; the zero value is
// ready.
type Throttle struct{ last map[string]time.Time }

// TakeDue reports whether something may be done now, and takes it as done.
func (p *Throttle) TakeDue(what string, nodes int, now time.Time) bool {
	if at, ok := p.last[what]; ok && now.Sub(at) < ThrottleInterval(nodes) && !now.Before(at) {
		return false
	}
	if p.last == nil {
		p.last = map[string]time.Time{}
	}
	p.last[what] = now
	return true
}
