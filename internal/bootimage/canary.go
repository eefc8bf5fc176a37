package bootimage

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// Outcomes of a canary in a decision.
const (
	// CanaryRuns: its machine stays.
	CanaryRuns = "Runs"
	// CanaryPassed and CanaryFailed end it; its machine is removed when that is recorded.
	CanaryPassed = "Passed"
	CanaryFailed = "Failed"
)

// Canary is the one machine that starts from a new image before refit writes the image for all.
type Canary struct {
	// Healthy is how long its node must be Ready without a break. Join is the time within which
	// it must become Ready. MaxFailures is how many machines may fail.
	Healthy, Join time.Duration
	MaxFailures   int
	// Before is an earlier source of the policy whose canary has not passed, empty for none.
	Before string
	// Passed: a canary has passed with this image, or a person approved it.
	Passed bool
	// Failures are the messages of the machines that failed with this image.
	Failures []string
	// Started is when refit created the temporary machine manager, zero if there is none.
	Started time.Time
	// Machine is its machine, and Failed why that cannot become Ready. ReadySince is zero while
	// its node is not Ready. Installed is the OS version that the node's agent reports.
	Machine, Failed string
	ReadySince      time.Time
	Installed       string
	// Node is the node of its machine in this cluster, empty if it is in another one. Unhealthy is
	// why health checks of the node's pool do not pass.
	Node, Unhealthy string
	// Unread is why its machine cannot be observed.
	Unread string
}

// tryFirst replaces a decision to write or to stage an image until a canary has passed with it.
// Canaries replace no machine, so they wait for no window.
func tryFirst(in *Input, d Decision) Decision {
	c := in.Canary
	if c == nil || c.Passed || in.Rollback != nil || in.Same {
		return d
	}
	if d.Action != Write && d.Action != Stage {
		return d
	}
	return c.next(in, d.State)
}

// next decides about an image that no canary has passed with.
func (c *Canary) next(in *Input, state string) Decision {
	image := describeImage(in.Wanted)
	out := Decision{Action: Leave, State: Outdated, Reason: reasonCanary}
	switch {
	case len(c.Failures) >= c.MaxFailures:
		return refuseCanary(image, c.Failures)
	case c.Before != "":
		out.Message, out.Fix = fmt.Sprintf("it uses %s; %s waits until the canary of MachineSource %s has passed", describeImage(in.Current), image, c.Before), "refit bootimage status "+c.Before
	case c.Started.IsZero():
		out.Action, out.Canary, out.Message = Boot, CanaryRuns, "one machine starts from "+image+" first; no other machine uses it until that one has passed"
	case in.Running != "":
		out = waitForUpdate(in, state)
		out.Canary = CanaryRuns
	default:
		out = c.observe(in, out, image)
	}
	return out
}

// observe decides about a canary whose machine was requested.
func (c *Canary) observe(in *Input, d Decision, image string) Decision {
	name := c.Machine
	if name == "" {
		name = "its machine"
	}
	d.Canary = CanaryRuns
	why := c.failure(in)
	switch {
	case why != "" && len(c.Failures)+1 >= c.MaxFailures:
		d = refuseCanary(image, append(slices.Clone(c.Failures), why))
		d.Canary, d.CanaryFailure = CanaryFailed, why
	case why != "":
		d.Canary, d.CanaryFailure = CanaryFailed, why
		d.Message = fmt.Sprintf("the canary for %s failed (%d of %d): %s; refit makes another machine", image, len(c.Failures)+1, c.MaxFailures, why)
	case c.Unread != "":
		d.Message, d.Fix = fmt.Sprintf("the canary for %s cannot be observed: %s", image, c.Unread), "allow refit to list machines: config/boot-images/access.yaml"
	case c.ReadySince.IsZero():
		d.Message = fmt.Sprintf("%s starts from %s; it must be Ready at %s", name, image, c.Started.Add(c.Join).UTC().Format(time.RFC3339))
	case in.Now.Sub(c.ReadySince) < c.Healthy:
		d.Message = fmt.Sprintf("%s started from %s and is Ready; the canary passes at %s", name, image, c.ReadySince.Add(c.Healthy).UTC().Format(time.RFC3339))
	case c.Unhealthy != "":
		d.Message = fmt.Sprintf("%s started from %s and is Ready; it passes when the health checks of its pool pass, until %s: %s", name, image, c.checksEnd().UTC().Format(time.RFC3339), c.Unhealthy)
	default:
		d.Canary, d.Message = CanaryPassed, fmt.Sprintf("%s started from %s and was Ready for %s; refit writes the image next", name, image, c.Healthy)
	}
	return d
}

// failure returns why the machine failed, empty if it did not.
func (c *Canary) failure(in *Input) string {
	name := "machine " + c.Machine
	if c.Machine == "" {
		name = "no machine was created, it"
	}
	if c.Failed != "" {
		return name + ": " + c.Failed
	}
	if v, ok := compareVersions(c.Installed, in.Wanted.OS); ok && v != 0 {
		return fmt.Sprintf("%s was installed from OS %s instead of %s", name, c.Installed, in.Wanted.OS)
	}
	if c.Unread == "" && c.ReadySince.IsZero() && in.Now.Sub(c.Started) >= c.Join {
		return fmt.Sprintf("%s was not Ready %s after its start", name, c.Join)
	}
	if c.Unhealthy != "" && c.ChecksDue(in.Now) && !in.Now.Before(c.checksEnd()) {
		return fmt.Sprintf("%s is Ready, and health checks of its pool did not pass within %s: %s", name, c.Join, c.Unhealthy)
	}
	return ""
}

// ChecksDue reports whether the health checks of the pool decide now: its node was Ready for long
// enough.
func (c *Canary) ChecksDue(now time.Time) bool {
	return !c.ReadySince.IsZero() && now.Sub(c.ReadySince) >= c.Healthy
}

// checksEnd is when health checks that do not pass make the machine a failure.
func (c *Canary) checksEnd() time.Time { return c.ReadySince.Add(c.Healthy + c.Join) }

// refuseCanary: a person decides about an image with which too many machines failed.
func refuseCanary(image string, failures []string) Decision {
	last := ""
	if n := len(failures); n > 0 {
		last = ": " + failures[n-1]
	}
	return Decision{Action: Leave, State: Outdated, Reason: reasonCanaryFailed, Message: fmt.Sprintf("%d canaries for %s failed, so refit does not write it%s", len(failures), image, last),
		Fix: "correct the cause, then refit bootimage retry SOURCE; or refuse the image in the policy (spec.refused)"}
}

// Labels of a canary: the first is on the temporary machine manager, the second on its machines.
// Cluster API copies labels of machines to machine sets, so one label for both would be found twice.
const (
	labelCanaryOf = "refit.dev/boot-image-canary-of"
	labelCanary   = "refit.dev/boot-image-canary"
)

// clusterLabels name the cluster of a machine; a canary is of the same one.
var clusterLabels = []string{"cluster.x-k8s.io/cluster-name", "machine.openshift.io/cluster-api-cluster"}

// CanaryName returns the name of the temporary machine manager for one attempt. It has a hash of
// the source, the image and the attempt, so a second try after a crash finds the first one.
func CanaryName(manager, source string, wanted Image, attempt string) string {
	hash, _ := hashOf(source, wanted.Text, wanted.OS, attempt) // strings are always encoded
	return strings.TrimRight(manager[:min(len(manager), baseLength-len("-canary"))], "-.") + "-canary-" + hash
}

// CanaryCopy returns a copy of a machine manager that makes one machine. edited is the manager
// with the wanted image; it is changed. The selector is the copy's own, so neither manager adopts
// the other's machines. Other marks are left out: autoscalers and other tools ignore the copy.
func CanaryCopy(edited map[string]any, source, name string) (map[string]any, error) {
	meta, _ := edited["metadata"].(map[string]any)
	spec, _ := edited["spec"].(map[string]any)
	selector, _ := spec["selector"].(map[string]any)
	template, _ := spec["template"].(map[string]any)
	if template == nil || selector == nil {
		return nil, fmt.Errorf("it has no spec.selector or no spec.template, so it cannot be copied for a canary")
	}
	if more, _ := selector["matchExpressions"].([]any); len(more) > 0 {
		return nil, fmt.Errorf("its selector has matchExpressions, so a copy for a canary could share its machines")
	}
	old, _ := selector["matchLabels"].(map[string]any)
	match, own := map[string]any{labelCanary: name}, false
	templateMeta, _ := template["metadata"].(map[string]any)
	if templateMeta == nil {
		templateMeta = map[string]any{}
	}
	labels, _ := templateMeta["labels"].(map[string]any)
	if labels == nil {
		labels = map[string]any{}
	}
	for k, v := range old {
		if slices.Contains(clusterLabels, k) {
			match[k] = v
			continue
		}
		match[k], labels[k], own = name, name, true
	}
	if !own {
		return nil, fmt.Errorf("its selector has no label of its own, so a copy for a canary could share its machines")
	}
	labels[labelCanary] = name
	templateMeta["labels"], template["metadata"] = labels, templateMeta
	spec["replicas"], spec["selector"] = int64(1), map[string]any{"matchLabels": match}
	delete(spec, "paused")
	m := map[string]any{"name": name, "labels": canaryLabels(meta["labels"], source)}
	if ns, ok := meta["namespace"]; ok {
		m["namespace"] = ns
	}
	if uid, _ := meta["uid"].(string); uid != "" { // garbage collection removes the copy with the original
		m["ownerReferences"] = []any{map[string]any{"apiVersion": edited["apiVersion"], "kind": edited["kind"], "name": meta["name"], "uid": uid}}
	}
	return map[string]any{"apiVersion": edited["apiVersion"], "kind": edited["kind"], "metadata": m, "spec": spec}, nil
}

func canaryLabels(of any, source string) map[string]any {
	out := map[string]any{labelCanaryOf: source, labelManagedBy: managedBy}
	had, _ := of.(map[string]any)
	for _, k := range clusterLabels {
		if v, ok := had[k]; ok {
			out[k] = v
		}
	}
	return out
}

// CanarySource returns the UID of the MachineSource of a canary's machine manager.
func CanarySource(o map[string]any) (source string, ok bool) {
	by, _ := MetadataValue(o, "labels", labelManagedBy)
	source, ok = MetadataValue(o, "labels", labelCanaryOf)
	return source, ok && by == managedBy
}
