package osdeploy

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"slices"
	"sort"
	"strings"
	"time"

	"github.com/refit-dev/refit/internal/text"

	"github.com/refit-dev/refit/internal/agent/host/osdriver"
	"github.com/refit-dev/refit/internal/fsutil"
	"github.com/refit-dev/refit/internal/model"
)

// Fields in addition to those that a configuration wants. The planner reads them, and the
// removal of old images.
const (
	// FieldDriver is how the OS is moved: bootc, rpm-ostree, ostree, sysext, package.
	FieldDriver = model.FieldOSDriver
	// FieldUnsupported is why it cannot be.
	FieldUnsupported = model.FieldOSUnsupported
	// FieldRollback is the digest that a rollback boots, FieldStaged the one that the
	// next boot uses.
	FieldRollback = "os/rollback"
	FieldStaged   = "os/staged"
	// FieldPrepared is the name of the configuration whose image was prepared on the node
	// ahead of its run, or none; FieldProblem is why it was not.
	FieldPrepared = model.FieldOSPrepared
	FieldProblem  = model.FieldOSProblem
	// FieldDrift lists the kinds of drift, with commas; PrefixDrift and a kind has the
	// details.
	FieldDrift  = "os/drift"
	PrefixDrift = model.FieldOSDrift
)

// statusInterval is the shortest time between two reads of the host's status for fields: its
// tools take a second of CPU time.
const statusInterval = time.Minute

// cachedStatus is the last status of the host.
type cachedStatus struct {
	at     time.Time
	status osdriver.Status
	ok     bool
}

// Fields are those of the OS, if a configuration wants any. What cannot be read is left
// out.
func (u *Updater) Fields(ctx context.Context, c *model.NodeConfig) map[string]string {
	if c.OS == nil {
		return nil
	}
	u.mu.Lock()
	now, problem := u.seen, u.problem
	u.mu.Unlock()
	if !now.ok || u.now().Sub(now.at) >= statusInterval {
		_, s, err := u.status(ctx)
		now = cachedStatus{u.now(), s, err == nil}
		u.mu.Lock()
		u.seen = now
		u.mu.Unlock()
	}
	r, err := u.record.load()
	if !now.ok || err != nil {
		return nil
	}
	out := fieldsOf(now.status, c.OS, r)
	out[FieldPrepared] = model.ValueNone
	if r.Prepared != nil && r.Prepared.isReady(r.Prepared.Config, now.status) {
		out[FieldPrepared] = r.Prepared.Config
	}
	u.addBootFallback(out)
	u.addCarried(out, now.status)
	u.addSELinux(out)
	if v := u.policyAnswer(c.OS.Image); v != "" {
		out[model.FieldOSPolicy] = v
	}
	if problem != "" {
		out[FieldProblem] = text.Truncate(problem, maxDetail)
	}
	return out
}

// addBootFallback adds the requirements that a host does not meet, where a boot loader chooses among
// its deployments.
func (u *Updater) addBootFallback(out map[string]string) {
	switch out[FieldDriver] {
	case osdriver.Bootc, osdriver.RPMOSTree, osdriver.OSTree:
		if u.counter == nil {
			return
		}
		out[model.FieldOSBootFallback] = model.ValueComplete
		if missing := u.counter.Missing(); len(missing) > 0 {
			out[model.FieldOSBootFallback] = strings.Join(missing, ",")
		}
	}
}

// WithSELinux reports whether the kernel enforces an SELinux policy, too; root is where the host's
// files are.
func (u *Updater) WithSELinux(root string) *Updater {
	u.selinux = root
	return u
}

// addSELinux adds that the host enforces a policy, where an image brings the policy.
func (u *Updater) addSELinux(out map[string]string) {
	switch out[FieldDriver] {
	case osdriver.Bootc, osdriver.RPMOSTree, osdriver.OSTree:
		if u.selinux == "" {
			return
		}
		if _, enforcing, _ := fsutil.HostContexts(u.selinux); enforcing {
			out[model.FieldOSSELinux] = model.ValueEnforcing
		}
	}
}

// PolicyFile is where hosts have their signature policy.
const PolicyFile = "/etc/containers/policy.json"

// WithPolicy reports the answer of a signature policy in a file, too.
func (u *Updater) WithPolicy(file string) *Updater {
	u.policy = file
	return u
}

// policyAnswer is the answer of the host's signature policy about an image, "" without one. A
// host takes no image by a policy that it cannot read.
func (u *Updater) policyAnswer(image string) string {
	if u.policy == "" {
		return ""
	}
	raw, err := os.ReadFile(u.policy)
	if errors.Is(err, fs.ErrNotExist) {
		return ""
	}
	repository, _, _ := strings.Cut(image, "@")
	if err == nil {
		if v, err := model.SignaturePolicy(raw, repository); err == nil {
			return v
		}
	}
	return model.SignaturePolicyRejects
}

func fieldsOf(s osdriver.Status, want *model.ConfigOS, r recordData) map[string]string {
	out := map[string]string{FieldDriver: s.Driver, model.FieldKernelArguments: ownArguments(s.Running, want, r.OwnKargs)}
	if s.Unsupported != "" {
		out[FieldUnsupported] = s.Unsupported
	}
	if s.Booted != nil {
		out[model.FieldOSImage] = r.requestedDigest(s.Booted.Digest)
	}
	if r.Failed != nil && r.Failed.Digest == want.Digest() && out[model.FieldOSImage] != r.Failed.Digest {
		out[model.FieldOSFailed] = text.Truncate(r.Failed.Digest+": "+r.Failed.Why, maxDetail)
	}
	r.addHistoryFields(out)
	if s.Rollback != nil {
		out[FieldRollback] = r.requestedDigest(s.Rollback.Digest)
	}
	if !s.NextIsBooted() {
		out[FieldStaged] = r.requestedDigest(s.Next.Digest)
	}
	drift, left := addForeignDrift(s, want, r)
	if left {
		out[model.FieldOSLeft] = r.RequestedDigest
	}
	details := map[string][]string{}
	for _, d := range drift {
		details[d.Kind] = append(details[d.Kind], d.Detail)
	}
	var kinds []string
	for kind, all := range details {
		kinds = append(kinds, kind)
		out[PrefixDrift+kind] = text.Truncate(strings.Join(all, "; "), maxDetail)
	}
	sort.Strings(kinds)
	out[FieldDrift] = strings.Join(kinds, ",")
	return out
}

// addForeignDrift adds drift if another deployment is booted than the one refit booted last.
// left: a person or the host rolled the node back from a deployment that is still wanted to
// the one before it; refit does not undo that.
func addForeignDrift(s osdriver.Status, want *model.ConfigOS, r recordData) (drift []osdriver.Drift, left bool) {
	drift = slices.Clone(s.Drift)
	if r.RequestedDigest == "" || s.Booted == nil {
		return slices.DeleteFunc(drift, func(d osdriver.Drift) bool { return d.Kind == osdriver.DriftForeign }), false // refit has booted nothing here yet
	}
	t := osdriver.Target{Digest: r.RequestedDigest, Same: []string{r.BootedDigest}}
	switch {
	case t.IsImageOf(s.Booted):
	case want.Digest() == r.RequestedDigest && s.Booted.Digest == r.PreviousDigest:
		left = true
	case want.Digest() != s.Booted.Digest:
		drift = append(drift, osdriver.Drift{Kind: osdriver.DriftForeign, Detail: "the node runs " + deploymentName(s.Booted) + ", which refit did not boot; it had booted " + text.ShortDigest(r.RequestedDigest)})
	}
	return drift, left
}

// maxDetail is how many bytes of a detail a status has.
const maxDetail = 512

// ownArguments are refit's arguments on the running kernel: the wanted ones in their order,
// then those that refit set earlier and that are still there.
func ownArguments(running []string, want *model.ConfigOS, given []string) string {
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
