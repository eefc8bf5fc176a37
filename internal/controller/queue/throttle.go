package queue

import "time"

// small is up to how many nodes nothing is saved.
const small = 200

// atMost is how long anything waits.
const atMost = 10 * time.Second

// Every is how long something rests in a cluster of so many nodes.
func Every(nodes int) time.Duration {
	if nodes <= small {
		return 0
	}
	return min(atMost, max(time.Second, time.Duration(nodes)*time.Millisecond))
}

// atOnce is how long events are collected in a small cluster.
const atOnce = 200 * time.Millisecond

// Settle is how long events of single nodes are collected before all of so many
// nodes are looked at: up to a second.
func Settle(nodes int) time.Duration {
	return min(time.Second, max(atOnce, time.Duration(nodes)*time.Second/30000))
}

// Pace remembers when what was due last. For one goroutine; the zero value is
// ready.
type Pace struct{ last map[string]time.Time }

// Due reports whether something may be done now, and takes it as done.
func (p *Pace) Due(what string, nodes int, now time.Time) bool {
	if at, ok := p.last[what]; ok && now.Sub(at) < Every(nodes) && !now.Before(at) {
		return false
	}
	if p.last == nil {
		p.last = map[string]time.Time{}
	}
	p.last[what] = now
	return true
}
