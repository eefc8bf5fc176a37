package osdeploy

import (
	"context"
	"slices"
	"sort"
	"strings"
	"time"

	"github.com/refit-dev/refit/internal/text"

	"github.com/refit-dev/refit/internal/agent/host/osdriver"
	"github.com/refit-dev/refit/internal/model"
)

// Fields beside those that a configuration wants; the planner and whoever removes
// old images read them.
const (
	// FieldDriver is how the OS is moved: bootc, rpm-ostree, ostree, sysext, package.
	FieldDriver = "os/driver"
	// FieldUnsupported is why it cannot be.
	FieldUnsupported = "os/unsupported"
	// FieldRollback is the digest that the node goes back to, FieldStaged the one
	// that it boots next.
	FieldRollback = "os/rollback"
	FieldStaged   = "os/staged"
	// FieldPrepared is the name of the configuration whose image lies ready on the node
	// before it is taken, or none; FieldProblem why it does not.
	FieldPrepared = model.FieldOSPrepared
	FieldProblem  = model.FieldOSProblem
	// FieldDrift are the kinds of drift, with commas; PrefixDrift and a kind has
	// what was found.
	FieldDrift  = "os/drift"
	PrefixDrift = model.FieldOSDrift
)

// lookEvery is how often the host is asked for fields at most: its tools take a
// second of a processor.
const lookEvery = time.Minute

// seen is what the host said last.
type seen struct {
	at     time.Time
	status osdriver.Status
	ok     bool
}

// Fields are those of the OS, if a configuration wants any. What cannot be seen is
// left out.
func (u *Updater) Fields(ctx context.Context, c *model.NodeConfig) map[string]string {
	if c.OS == nil {
		return nil
	}
	u.mu.Lock()
	now, problem := u.seen, u.problem
	u.mu.Unlock()
	if !now.ok || u.now().Sub(now.at) >= lookEvery {
		_, s, err := u.status(ctx)
		now = seen{u.now(), s, err == nil}
		u.mu.Lock()
		u.seen = now
		u.mu.Unlock()
	}
	r, err := u.record.read()
	if !now.ok || err != nil {
		return nil
	}
	out := fieldsOf(now.status, c.OS, r)
	out[FieldPrepared] = model.ValueNone
	if r.Prepared != nil && r.Prepared.holds(r.Prepared.Config, now.status) {
		out[FieldPrepared] = r.Prepared.Config
	}
	if problem != "" {
		out[FieldProblem] = text.Truncate(problem, longest)
	}
	return out
}

func fieldsOf(s osdriver.Status, want *model.ConfigOS, r given) map[string]string {
	out := map[string]string{FieldDriver: s.Driver, model.FieldKernelArguments: arguments(s.Running, want, r.Given)}
	if s.Unsupported != "" {
		out[FieldUnsupported] = s.Unsupported
	}
	if s.Booted != nil {
		out[model.FieldOSImage] = r.asked(s.Booted.Digest)
	}
	if r.Bad != nil && r.Bad.Digest == want.Digest() && out[model.FieldOSImage] != r.Bad.Digest {
		out[model.FieldOSFailed] = text.Truncate(r.Bad.Digest+": "+r.Bad.Why, longest)
	}
	if s.Rollback != nil {
		out[FieldRollback] = r.asked(s.Rollback.Digest)
	}
	if !s.Stays() {
		out[FieldStaged] = r.asked(s.Next.Digest)
	}
	drift, left := gone(s, want, r)
	if left {
		out[model.FieldOSLeft] = r.Asked
	}
	details := map[string][]string{}
	for _, d := range drift {
		details[d.Kind] = append(details[d.Kind], d.Detail)
	}
	var kinds []string
	for kind, all := range details {
		kinds = append(kinds, kind)
		out[PrefixDrift+kind] = text.Truncate(strings.Join(all, "; "), longest)
	}
	sort.Strings(kinds)
	out[FieldDrift] = strings.Join(kinds, ",")
	return out
}

// gone adds to what the host says that another deployment is booted than the one refit
// booted last. left: the node was taken back from one that is wanted still to the one before
// it, which a person or the host did, and which is not undone.
func gone(s osdriver.Status, want *model.ConfigOS, r given) (drift []osdriver.Drift, left bool) {
	drift = slices.Clone(s.Drift)
	if r.Asked == "" || s.Booted == nil {
		return slices.DeleteFunc(drift, func(d osdriver.Drift) bool { return d.Kind == osdriver.DriftForeign }), false // refit has booted nothing here yet
	}
	t := osdriver.Target{Digest: r.Asked, Same: []string{r.Booted}}
	switch {
	case t.On(s.Booted):
	case want.Digest() == r.Asked && s.Booted.Digest == r.Before:
		left = true
	case want.Digest() != s.Booted.Digest:
		drift = append(drift, osdriver.Drift{Kind: osdriver.DriftForeign, Detail: "the node runs " + name(s.Booted) + ", which refit did not boot; it had booted " + text.ShortDigest(r.Asked)})
	}
	return drift, left
}

// longest is how much of a detail a status repeats.
const longest = 512

// arguments are refit's on the running kernel: those that are wanted, in their
// order, and after them those that refit gave earlier and that are still there.
func arguments(running []string, want *model.ConfigOS, given []string) string {
	var out []string
	for _, a := range want.KernelArguments {
		if slices.Contains(running, a) {
			out = append(out, a)
		}
	}
	for _, a := range given {
		if slices.Contains(running, a) && !slices.Contains(out, a) {
			out = append(out, a)
		}
	}
	return (&model.ConfigOS{KernelArguments: out}).ArgumentsValue()
}
