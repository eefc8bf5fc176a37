// Package servicerestart restarts a node's container runtime or kubelet for an updater
// and checks that it is back, with the containers that ran.
//
// Promise: the need for a restart is on disk before anything changes, with the process
// that ran and its containers, so that a kill forgets none. The restart is over when
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
	// What it is, for people: the container runtime.
	What() string
	// Process names its process so that another one has another name, also after a
	// reboot; "" if it does not run.
	Process(ctx context.Context) (string, error)
	Restart(ctx context.Context) error
	// Unready says why it does not do its work, "" if it does.
	Unready(ctx context.Context) string
	// Containers of all pods.
	Containers(ctx context.Context) ([]cri.Container, error)
	// Log is the end of its log.
	Log(ctx context.Context) string
}

// grace is how long containers may take to be there again, and again how often
// a runtime that does not run is started.
const (
	grace = time.Minute
	again = 20 * time.Second
)

// pending is a restart that is needed.
type pending struct {
	What string `json:"what"`
	// Before is the process that ran; Containers ran in it, as pod/name=ID.
	Before     string   `json:"before"`
	Containers []string `json:"containers"`
	// ReadyAt and AskedAt are of no clock that can be set; of another boot they count as none.
	ReadyAt BootStamp `json:"readyAt,omitzero"`
	AskedAt BootStamp `json:"askedAt,omitzero"`
	// Over: it was done; Note says what was lost.
	Over bool   `json:"over,omitempty"`
	Note string `json:"note,omitempty"`
}

func file(t updaters.Task) string { return filepath.Join(t.Dir, t.Step.ID+".restart.json") }

func read(t updaters.Task) (*pending, error) {
	p := &pending{}
	switch ok, err := fsutil.ReadJSON(file(t), p); {
	case err != nil:
		return nil, fmt.Errorf("the pending restart: %w", err)
	case !ok:
		return nil, nil
	}
	return p, nil
}

func (p *pending) save(t updaters.Task) error { return fsutil.WriteJSON(file(t), p) }

// RequireRestart notes that the runtime must restart because of what is changed next.
func RequireRestart(ctx context.Context, h Host, t updaters.Task) error {
	have, err := read(t)
	if err != nil || have != nil && !have.Over {
		return err
	}
	p := &pending{What: h.What()}
	if p.Before, err = h.Process(ctx); err != nil {
		return err
	}
	if cs, err := h.Containers(ctx); err == nil { // a runtime that is away has none to keep
		p.Containers = running(cs)
	}
	return p.save(t)
}

func running(cs []cri.Container) []string {
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
	// Over: none is needed any more.
	Over bool
	// Says what is missing, or what was lost.
	Says string
}

// ReadState says how far a restart is, without doing anything.
func ReadState(t updaters.Task) (State, error) {
	p, err := read(t)
	switch {
	case err != nil:
		return State{}, err
	case p == nil:
		return State{Over: true}, nil
	case p.Over:
		return State{Over: true, Says: p.Note}, nil
	}
	return State{Says: p.What + " has not restarted yet"}, nil
}

// AdvanceRestart does the next thing that is missing.
func AdvanceRestart(ctx context.Context, h Host, t updaters.Task, now time.Time) (State, error) {
	p, err := read(t)
	if err != nil || p == nil || p.Over {
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
	if process == p.Before || process == "" {
		return p.restart(ctx, h, t, process, at)
	}
	if sick := h.Unready(ctx); sick != "" {
		return State{Says: h.What() + " is not back: " + sick}, nil
	}
	return p.count(ctx, h, t, at)
}

// count sees that the containers are back, and ends the wait for those that are
// not.
func (p *pending) count(ctx context.Context, h Host, t updaters.Task, now BootStamp) (State, error) {
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
	lost := p.lost(cs)
	if len(lost) > 0 && waited < grace {
		return State{Says: "containers are not back: " + strings.Join(first(lost), ", ")}, nil
	}
	if len(lost) > 0 {
		p.Note = fmt.Sprintf("%d of %d containers did not run any more after the restart of %s, the first are %s", len(lost), len(p.Containers), h.What(), strings.Join(first(lost), ", "))
	}
	p.Over = true
	return State{Over: true, Says: p.Note}, p.save(t)
}

// restart tells the runtime to restart; one that does not run is started, again
// and again but not at every look.
func (p *pending) restart(ctx context.Context, h Host, t updaters.Task, process string, now BootStamp) (State, error) {
	s := State{Says: h.What() + " is restarting"}
	if waited, ok := now.Since(p.AskedAt); process == "" && ok && waited < again {
		return State{Says: h.What() + " does not run: " + h.Log(ctx)}, nil
	}
	p.AskedAt = now
	if err := p.save(t); err != nil {
		return s, err
	}
	// Ended or not: nobody else would start it again.
	err := h.Restart(context.WithoutCancel(ctx))
	failpoint.Here(failpoint.RuntimeRestart)
	return s, err
}

// lost are the containers that ran before and have neither gone on nor a
// successor of their name.
func (p *pending) lost(now []cri.Container) []string {
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

func first(all []string) []string { return all[:min(3, len(all))] }

// ClearRestart drops what is noted, after an undo.
func ClearRestart(t updaters.Task) error {
	if err := os.Remove(file(t)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("the pending restart: %w", err)
	}
	return nil
}

// UndoWithRestart restores what a step changed, with a restart of its own, until the service runs with
// that. differs reports whether there is something to restore.
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
	if err != nil || !s.Over {
		return s, err
	}
	return s, ClearRestart(t)
}
