package notifications

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"
)

const (
	// resendInterval is how often all alerts are sent; Alertmanager ends an alert by itself that
	// was not sent for alertLifetime.
	resendInterval, alertLifetime = time.Minute, 5 * time.Minute
	// doneTime is how long the alert of a finished update stays.
	doneTime = time.Hour
)

var severities = map[string]string{eventStarted: "info", eventNeedsPerson: "warning", eventFailed: "critical", eventDone: "info"}

// alert is one alert of Alertmanager's API v2.
type alert struct {
	Labels      map[string]string `json:"labels"`
	Annotations map[string]string `json:"annotations"`
	StartsAt    time.Time         `json:"startsAt"`
	EndsAt      time.Time         `json:"endsAt"`
}

// alertFor returns the alert of a notice, and whether it is still active.
func alertFor(n *notice, now time.Time) (alert, bool) {
	a := alert{StartsAt: n.At, Labels: map[string]string{"alertname": "RefitUpdate" + n.Event, "severity": severities[n.Event], "update": n.Update},
		Annotations: map[string]string{"summary": summary(n), "description": n.Message, "nodes": fmt.Sprintf("%d/%d", n.NodesDone, n.NodesTotal)}}
	for name, value := range map[string]string{"cluster": n.Cluster, "reason": reasonOf(n)} {
		if value != "" {
			a.Labels[name] = value
		}
	}
	for name, value := range map[string]string{"fix": n.Fix, "version": n.Version, "object": n.Object} {
		if value != "" {
			a.Annotations[name] = value
		}
	}
	switch n.Event {
	case eventStarted:
		return a, n.Phase != "Done"
	case eventDone:
		return a, now.Sub(n.At) < doneTime
	}
	return a, true
}

func summary(n *notice) string {
	words := map[string]string{eventStarted: "has started", eventNeedsPerson: "waits for a person", eventFailed: "halted", eventDone: "is done"}
	return "ClusterUpdate " + n.Update + " " + words[n.Event] + "."
}

// key identifies an alert: Alertmanager compares labels.
func (a *alert) key() string {
	var b strings.Builder
	for _, name := range slices.Sorted(maps.Keys(a.Labels)) {
		fmt.Fprintf(&b, "%s=%q,", name, a.Labels[name])
	}
	return b.String()
}

// alertmanager sends the current alerts to one Alertmanager.
type alertmanager struct {
	*poster
	to  *url.URL
	now func() time.Time

	mu sync.Mutex
	// active are the alerts to send, ended those that ended less than alertLifetime ago.
	active, ended map[string]alert
	// fresh: something changed since the last successful request.
	fresh bool
	wake  chan struct{}
}

func newAlertmanager(p *poster, now func() time.Time) *alertmanager {
	return &alertmanager{poster: p, to: p.url.JoinPath("api/v2/alerts"), now: now, active: map[string]alert{}, ended: map[string]alert{}, wake: make(chan struct{}, 1)}
}

// set replaces the alerts. It does not wait.
func (s *alertmanager) set(current []notice) {
	now := s.now()
	next := map[string]alert{}
	for i := range current {
		if a, ok := alertFor(&current[i], now); ok && s.wants(current[i].Event) && len(next) < maxQueue {
			next[a.key()] = a
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.replace(next, now) {
		return
	}
	s.fresh = true
	select {
	case s.wake <- struct{}{}:
	default: // it is awake already
	}
}

// replace makes other alerts the active ones, and reports whether one came or ended.
func (s *alertmanager) replace(next map[string]alert, now time.Time) (changed bool) {
	for key, a := range s.active {
		if _, still := next[key]; !still {
			a.EndsAt = now
			s.ended[key], changed = a, true
		}
	}
	for key := range next {
		if _, known := s.active[key]; !known {
			delete(s.ended, key)
			changed = true
		}
	}
	maps.DeleteFunc(s.ended, func(_ string, a alert) bool { return now.Sub(a.EndsAt) > alertLifetime })
	s.active = next
	return changed
}

// body returns the request with all alerts, nil if there is none.
func (s *alertmanager) body() ([]byte, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := slices.Collect(maps.Values(s.ended))
	for _, a := range s.active {
		a.EndsAt = s.now().Add(alertLifetime)
		all = append(all, a)
	}
	if len(all) == 0 {
		return nil, nil
	}
	s.fresh = false
	return json.Marshal(all)
}

func (s *alertmanager) run(ctx context.Context) {
	failures := 0
	for ctx.Err() == nil {
		wait, wake := resendInterval, s.wake
		if failed := s.send(ctx); failed {
			failures++
			wait, wake = min(s.pause(failures), resendInterval), nil // a change does not end the pause
		} else {
			failures = 0
		}
		sleep(ctx, wait, wake)
	}
	s.http.CloseIdleConnections()
}

// send sends all alerts once. Only requests with something new count as sent.
func (s *alertmanager) send(ctx context.Context) (failed bool) {
	s.mu.Lock()
	fresh := s.fresh
	s.mu.Unlock()
	body, err := s.body()
	if err == nil && body == nil {
		return false
	}
	if err == nil {
		err = s.post(ctx, s.to, body)
	}
	if err != nil && ctx.Err() != nil {
		return false // the controller stops
	}
	if err != nil {
		s.mu.Lock()
		s.fresh = s.fresh || fresh
		s.mu.Unlock()
		s.count(resultFailed)
		s.log.Info("failed to send alerts", "receiver", s.name, "error", err.Error())
		return true
	}
	if fresh {
		s.count(resultSent)
	}
	return false
}
