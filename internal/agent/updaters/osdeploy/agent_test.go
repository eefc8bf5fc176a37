package osdeploy

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/agent/host/osdriver"
	"github.com/refit-dev/refit/internal/model"
)

// carrier fails some times.
type carrier struct {
	m     *machine
	fails int
	err   error
	asked []string
}

func (c *carrier) Carry(_ context.Context, d *osdriver.Deployment) error {
	c.asked = append(c.asked, fmt.Sprint(d.Digest, " locked ", d.Locked, " boots ", c.m.boots, c.m.asked))
	if c.fails--; c.fails >= 0 {
		return c.err
	}
	return nil
}

// The agent is kept before what is staged is let go: nothing restarts without it.
func TestAgentIsCarried(t *testing.T) {
	for name, x := range map[string]struct {
		fails  int
		err    error
		reason string
	}{
		"it is there or copied":     {},
		"the disk is full for once": {1, errors.New("no space left on device"), ""},
		"the disk stays full":       {99, errors.New("no space left on device"), v1alpha1.ReasonOSNotStaged},
		"the image cannot take it":  {1, fmt.Errorf("%w: its /etc is transient", osdriver.ErrNoAgent), v1alpha1.ReasonOSImageAgent},
	} {
		t.Run(name, func(t *testing.T) {
			f, m := fixture(t)
			m.locks = true
			c := &carrier{m: m, fails: x.fails, err: x.err}
			r := drive(t, f, f.Make().(*Updater).WithAgent(c).Update)
			if r.Reason != x.reason || r.Done != (x.reason == "") || c.asked[0] != newSum+" locked true boots 0 0" {
				t.Fatalf("%+v, asked %v", r, c.asked)
			}
			if x.reason != "" && (m.boots != 0 || m.asked != 0 || !strings.Contains(r.Message, x.err.Error())) {
				t.Fatalf("%+v: %d boots, %d asked for", r, m.boots, m.asked)
			}
			if x.reason != "" && m.staged != nil {
				t.Fatal("any restart takes the agent away")
			}
		})
	}
}

// Before the drain the node says that it cannot keep its agent, and nothing is left that a restart boots.
func TestAgentIsCarriedBeforeTheDrain(t *testing.T) {
	u, m, _ := updaterOf(t)
	c := &carrier{m: m, fails: 1, err: fmt.Errorf("%w: its /etc is transient", osdriver.ErrNoAgent)}
	u.WithAgent(c)
	config, wanted := wants(newImage)
	err := u.Prepare(t.Context(), config, wanted)
	f := u.Fields(t.Context(), wanted)
	if !errors.Is(err, osdriver.ErrNoAgent) || m.staged != nil || f[FieldPrepared] != model.ValueNone || !strings.Contains(f[FieldProblem], "its /etc is transient") {
		t.Fatalf("%v; %v; staged %+v", err, f, m.staged)
	}
	if f := prepare(t, u, config, wanted); f[FieldPrepared] != config || len(c.asked) != 2 {
		t.Fatalf("%v, asked %v", f, c.asked)
	}
}

// A node says that it keeps its agent where deployments are files.
func TestCarriedField(t *testing.T) {
	for _, x := range []struct {
		driver    string
		composefs bool
		agent     AgentCarrier
		want      string
	}{
		{osdriver.Bootc, false, &carrier{}, model.ValueCarried}, {osdriver.RPMOSTree, false, &carrier{}, model.ValueCarried}, {osdriver.OSTree, false, &carrier{}, model.ValueCarried},
		{osdriver.Bootc, true, &carrier{}, ""}, {osdriver.Bootc, false, nil, ""}, {osdriver.Sysext, false, &carrier{}, ""}, {osdriver.Package, false, &carrier{}, ""},
	} {
		out := map[string]string{}
		New(nil, "").WithAgent(x.agent).addCarried(out, osdriver.Status{Driver: x.driver, Composefs: x.composefs})
		if out[model.FieldOSAgent] != x.want {
			t.Errorf("%+v: %v", x, out)
		}
	}
}
