package imagebuild

import (
	"regexp"
	"slices"
	"strings"

	"github.com/refit-dev/refit/internal/text"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
)

// Fault of a build.
type Fault string

// Faults.
const (
	NoFault Fault = ""
	// User: what was asked for cannot be; trying again gives the same.
	User Fault = "user"
	// Surroundings: tried again by the Job, and at the end of its tries told.
	Surroundings Fault = "surroundings"
	// Namespaces: this variant of the pod does not build here; another may.
	Namespaces Fault = "namespaces"
)

// Outcome is what became of a Job.
type Outcome struct {
	// Over: nothing more comes.
	Over bool
	// Digest of the image that was pushed, if it went well.
	Digest string
	// Packages is the digest of the image with the list of packages, empty if there is
	// none.
	Packages string
	Fault    Fault
	// Log is the end of what was said.
	Log string
	// Tries that were made.
	Tries int32
}

// maxLog bytes of a log are kept.
const maxLog = 4096

// said is the last message of a build that went well.
var said = regexp.MustCompile(`^(sha256:[0-9a-f]{64})(?:\n+packages (sha256:[0-9a-f]{64}))?$`)

// InspectJob reads what became of a Job from it and its pods.
func InspectJob(job *batchv1.Job, pods []corev1.Pod) Outcome {
	out := Outcome{Tries: job.Status.Failed + job.Status.Succeeded + job.Status.Active}
	slices.SortFunc(pods, func(a, b corev1.Pod) int { return b.CreationTimestamp.Compare(a.CreationTimestamp.Time) })
	last := lastEnd(pods)
	if last != nil {
		out.Log = text.Tail(strings.TrimSpace(last.Message), maxLog)
	}
	for _, c := range job.Status.Conditions {
		if c.Status != corev1.ConditionTrue {
			continue
		}
		switch c.Type {
		case batchv1.JobComplete:
			out.Over = true
			out.finish(last)
		case batchv1.JobFailed:
			out.Over = true
			out.Fault = faultOf(last)
			if out.Log == "" {
				out.Log = c.Reason + ": " + c.Message
			}
		}
	}
	return out
}

// finish reads the digest; a Job that ended well without one did not do its work.
func (o *Outcome) finish(last *corev1.ContainerStateTerminated) {
	if last != nil {
		if m := said.FindStringSubmatch(strings.TrimSpace(last.Message)); m != nil {
			o.Digest, o.Packages, o.Log = m[1], m[2], ""
			return
		}
	}
	o.Fault = Surroundings
	if o.Log == "" {
		o.Log = "the build ended and said no digest: its pod is gone, or its image is not one that refit's script runs in"
	}
}

func faultOf(last *corev1.ContainerStateTerminated) Fault {
	switch {
	case last == nil:
		return Surroundings
	case last.ExitCode == ExitUser:
		return User
	case last.ExitCode == ExitNamespaces:
		return Namespaces
	}
	return Surroundings
}

// lastEnd is how the newest pod that ended did.
func lastEnd(pods []corev1.Pod) *corev1.ContainerStateTerminated {
	for i := range pods {
		for _, c := range pods[i].Status.ContainerStatuses {
			if t := c.State.Terminated; t != nil {
				return t
			}
		}
	}
	return nil
}

// sortVolumes makes the order the same every time.
func sortVolumes(p *corev1.PodSpec) {
	slices.SortFunc(p.Volumes, func(a, b corev1.Volume) int { return strings.Compare(a.Name, b.Name) })
	slices.SortFunc(p.Containers[0].VolumeMounts, func(a, b corev1.VolumeMount) int { return strings.Compare(a.Name, b.Name) })
}
