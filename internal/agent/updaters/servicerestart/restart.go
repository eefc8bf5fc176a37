// Package servicerestart restarts a node's container runtime or kubelet for an updater
// and checks that it is back, with the containers that ran.
//
// Promise: before anything changes, the need for a restart is on disk, with the process
// that ran and its containers, so that a kill loses none. The restart is done when
// another process answers. Containers run through such a restart; those that do not are
// named. Deadlines are BootStamps (boot and CLOCK_BOOTTIME), which no change of the wall
// clock moves.
//
// Inputs: Host, the step's task. Outputs: State. Callers: the updaters programs, kubelet
// and kubeadm.
package servicerestart

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/refit-dev/refit/internal/agent/host/cri"
	"github.com/refit-dev/refit/internal/agent/updaters"
	"github.com/refit-dev/refit/internal/failpoint"
	"github.com/refit-dev/refit/internal/fsutil"
)

// Host is the part of the node that is restarted.
type Host interface {
	// What names it for people: the container runtime.
	What() string
	// Process names its process so that another one has another name, also after a
	// reboot; "" if it does not run.
	Process(ctx context.Context) (string, error)
	Restart(ctx context.Context) error
	// Unready says why it is not ready, "" if it is.
	Unready(ctx context.Context) string
	// Containers of all pods.
	Containers(ctx context.Context) ([]cri.Container, error)
	// Log is the end of its log.
	Log(ctx context.Context) string
}

// containersGrace is how long containers may take to come back. startRetry is the time
// between two starts of a service that does not run.
const (
	containersGrace = time.Minute
	startRetry      = 20 * time.Second
)

// pendingRestart is a restart that is required.
type pendingRestart struct {
	What string `json:"what"`
	// OldProcess is the process that ran; Containers ran then, as namespace/pod/name=ID.
	OldProcess string   `json:"before"`
	Containers []string `json:"containers"`
	// ReadyAt and RequestedAt use no clock that can be set; those of another boot do not count.
	ReadyAt     BootStamp `json:"readyAt,omitzero"`
	RequestedAt BootStamp `json:"askedAt,omitzero"`
	// Done: the restart is over; Message says what was lost.
	Done    bool   `json:"over,omitempty"`
	Message string `json:"note,omitempty"`
}

func pendingPath(t updaters.Task) string { return filepath.Join(t.Dir, t.Step.ID+".restart.json") }

func readPending(t updaters.Task) (*pendingRestart, error) {
	p := &pendingRestart{}
	switch ok, err := fsutil.ReadJSON(pendingPath(t), p); {
	case err != nil:
		return nil, fmt.Errorf("the pending restart: %w", err)
	case !ok:
		return nil, nil
	}
	return p, nil
}

func (p *pendingRestart) save(t updaters.Task) error { return fsutil.WriteJSON(pendingPath(t), p) }

// RequireRestart records that the service must restart because of the next change.
func RequireRestart(ctx context.Context, h Host, t updaters.Task) error {
	have, err := readPending(t)
	if err != nil || have != nil && !have.Done {
		return err
	}
	p := &pendingRestart{What: h.What()}
	if p.OldProcess, err = h.Process(ctx); err != nil {
		return err
	}
	if cs, err := h.Containers(ctx); err == nil { // an unavailable runtime has no containers to compare
		p.Containers = runningContainers(cs)
	}
	return p.save(t)
}

func runningContainers(cs []cri.Container) []string {
	var out []string
	for _, c := range cs {
		if c.Running {
			out = append(out, c.Namespace+"/"+c.Pod+"/"+c.Name+"="+c.ID)
		}
	}
	slices.Sort(out)
	return out
}

// State of a restart.
type State struct {
	// Done: no restart is required any more.
	Done bool
	// Message says what is missing, or what was lost.
	Message string
}

// ReadState reports the progress of a restart, and changes nothing.
func ReadState(t updaters.Task) (State, error) {
	p, err := readPending(t)
	switch {
	case err != nil:
		return State{}, err
	case p == nil:
		return State{Done: true}, nil
	case p.Done:
		return State{Done: true, Message: p.Message}, nil
	}
	return State{Message: p.What + " has not restarted yet"}, nil
}

// AdvanceRestart does the next part of the restart.
func AdvanceRestart(ctx context.Context, h Host, t updaters.Task, now time.Time) (State, error) {
	p, err := readPending(t)
	if err != nil || p == nil || p.Done {
		s, err2 := ReadState(t)
		return s, errors.Join(err, err2)
	}
	process, err := h.Process(ctx)
	if err != nil {
		return State{}, err
	}
	at, err := StampAt(now)
	if err != nil {
		return State{}, err
	}
	if process == p.OldProcess || process == "" {
		return p.restart(ctx, h, t, process, at)
	}
	if sick := h.Unready(ctx); sick != "" {
		return State{Message: h.What() + " is not back: " + sick}, nil
	}
	return p.awaitContainers(ctx, h, t, at)
}

// awaitContainers waits until the containers are back, but no longer than containersGrace.
func (p *pendingRestart) awaitContainers(ctx context.Context, h Host, t updaters.Task, now BootStamp) (State, error) {
	waited, ok := now.Since(p.ReadyAt)
	if !ok {
		p.ReadyAt = now
		if err := p.save(t); err != nil {
			return State{}, err
		}
	}
	cs, err := h.Containers(ctx)
	if err != nil {
		return State{}, err
	}
	lost := p.lostContainers(cs)
	if len(lost) > 0 && waited < containersGrace {
		return State{Message: "containers are not back: " + strings.Join(firstThree(lost), ", ")}, nil
	}
	if len(lost) > 0 {
		p.Message = fmt.Sprintf("%d of %d containers did not run any more after the restart of %s, the first are %s", len(lost), len(p.Containers), h.What(), strings.Join(firstThree(lost), ", "))
	}
	p.Done = true
	return State{Done: true, Message: p.Message}, p.save(t)
}

// restart restarts the service. A service that does not run is started repeatedly, but not
// at every call.
func (p *pendingRestart) restart(ctx context.Context, h Host, t updaters.Task, process string, now BootStamp) (State, error) {
	s := State{Message: h.What() + " is restarting"}
	if waited, ok := now.Since(p.RequestedAt); process == "" && ok && waited < startRetry {
		return State{Message: h.What() + " does not run: " + h.Log(ctx)}, nil
	}
	p.RequestedAt = now
	if err := p.save(t); err != nil {
		return s, err
	}
	// Not canceled with the context: nothing else would start the service again.
	err := h.Restart(context.WithoutCancel(ctx))
	failpoint.Here(failpoint.RuntimeRestart)
	return s, err
}

// lostContainers are the containers that ran before, do not run any more and have no
// successor of the same name.
func (p *pendingRestart) lostContainers(now []cri.Container) []string {
	ids, names := map[string]bool{}, map[string]bool{}
	for _, c := range now {
		if c.Running {
			ids[c.ID], names[c.Namespace+"/"+c.Pod+"/"+c.Name] = true, true
		}
	}
	var out []string
	for _, c := range p.Containers {
		name, id, _ := strings.Cut(c, "=")
		if !ids[id] && !names[name] {
			out = append(out, name)
		}
	}
	return out
}

func firstThree(all []string) []string { return all[:min(3, len(all))] }

// ClearRestart drops the record of the restart, after an undo.
func ClearRestart(t updaters.Task) error {
	if err := os.Remove(pendingPath(t)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("the pending restart: %w", err)
	}
	return nil
}

// UndoWithRestart restores what a step changed, with a restart of its own, until the service
// runs with that. differs reports whether there is something to restore.
func UndoWithRestart(ctx context.Context, h Host, t updaters.Task, now time.Time, differs bool, restore func() error) (State, error) {
	undo := t
	undo.Step.ID += "-undo"
	if differs {
		if err := RequireRestart(ctx, h, undo); err != nil {
			return State{}, err
		}
		if err := restore(); err != nil {
			return State{}, err
		}
	}
	s, err := AdvanceRestart(ctx, h, undo, now)
	if err != nil || !s.Done {
		return s, err
	}
	return s, ClearRestart(t)
}
