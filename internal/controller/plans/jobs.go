package plans

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/refit-dev/refit/internal/controller/clusterapi/hooks"
	"github.com/refit-dev/refit/internal/model"
)

// Settings that tell an updater which fields of a node are its own, and in which
// update and attempt it is asked.
const (
	settingPaths   = "refit.dev/paths"
	settingUpdate  = "refit.dev/update"
	settingAttempt = "refit.dev/attempt"
)

// ExternalJob is the step of a plan that an external updater is to do.
type ExternalJob struct {
	Node string
	// Update is the UID of the ClusterUpdate, Attempt that of the node.
	Update  string
	Attempt int32
	Updater string
	Step    model.Step
}

// ExternalAnswer is what an updater said of a job last.
type ExternalAnswer struct {
	// Done and Failed are its own words; done is nothing before the agent sees it.
	Done, Failed bool
	// Says is for people, the same while nothing changes.
	Says string
}

// Work has an updater do its step, by the same request until it is seen done.
func (c *ExternalUpdaters) Work(ctx context.Context, j ExternalJob) (ExternalAnswer, error) {
	list, err := c.updaters(ctx)
	if err != nil {
		return ExternalAnswer{}, err
	}
	i := slices.IndexFunc(list, func(r *hooks.Registered) bool { return r.Name == j.Updater })
	if i < 0 {
		return ExternalAnswer{Says: "Updater " + j.Updater + " is registered no longer; register it again"}, nil
	}
	want := map[string]string{}
	var paths []string
	for _, d := range j.Step.Changes {
		want[d.Path] = d.To
		paths = append(paths, d.Path)
	}
	req := hooks.Request{Desired: machine(Object(j.Node, want)), Settings: map[string]string{
		settingPaths: strings.Join(paths, ","), settingUpdate: j.Update, settingAttempt: fmt.Sprint(j.Attempt)}}
	k := question{list[i].ID(), j.Node, fmt.Sprintf("work %s %d %s", j.Update, j.Attempt, text(want))}
	x := c.lastAnswer(ctx, list[i], k, hooks.UpdateMachine, req, func(x *cachedAnswer) time.Duration {
		return min(max(soonest, time.Duration(x.answer.RetryAfter)*time.Second), latest)
	})
	return externalAnswer(j.Updater, x), nil
}

func externalAnswer(updater string, x cachedAnswer) ExternalAnswer {
	switch {
	case !x.asked:
		return ExternalAnswer{Says: "Updater " + updater + " is asked"}
	case x.silent != "":
		return ExternalAnswer{Says: x.silent}
	case x.answer.Failed:
		return ExternalAnswer{Failed: true, Says: "Updater " + updater + " says: " + x.answer.Message}
	case x.answer.RetryAfter > 0:
		return ExternalAnswer{Says: "Updater " + updater + ": " + x.answer.Message}
	}
	return ExternalAnswer{Done: true, Says: "Updater " + updater + " says that it is done"}
}

func sorted(s []string) []string {
	slices.Sort(s)
	return s
}
