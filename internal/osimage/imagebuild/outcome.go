package imagebuild

import (
	"regexp"
	"slices"
	"strconv"
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
	// User: the Containerfile or its inputs are wrong; a retry fails in the same way.
	User Fault = "user"
	// Environment: a failure of the node, the network or a registry. The Job retries, and
	// refit reports the failure of its last attempt.
	Environment Fault = "surroundings"
	// Namespaces: this variant of the pod cannot build here; another may.
	Namespaces Fault = "namespaces"
)

// Outcome of a Job.
type Outcome struct {
	// Finished: the Job completed or failed.
	Finished bool
	// Digest of the pushed image of a successful build.
	Digest string
	// Packages is the digest of the image with the list of packages, empty if there is
	// none.
	Packages string
	// PushSeconds is how long the push of the image took.
	PushSeconds int64
	Fault       Fault
	// Log is the end of the build's output.
	Log string
	// Tries counts the Job's attempts.
	Tries int32
}

// maxLog is how much of a log is kept, in bytes.
const maxLog = 4096

// resultMessage is the termination message of a successful build.
var resultMessage = regexp.MustCompile(`^(sha256:[0-9a-f]{64})(?:\n+packages (sha256:[0-9a-f]{64}))?(?:\n+pushed ([0-9]{1,9}))?$`)

// InspectJob returns the outcome of a Job from its conditions and its pods.
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
			out.Finished = true
			out.readDigest(last)
		case batchv1.JobFailed:
			out.Finished = true
			out.Fault = faultOf(last)
			if out.Log == "" {
				out.Log = c.Reason + ": " + c.Message
			}
		}
	}
	return out
}

// readDigest reads the digest; a completed Job without one is a failure.
func (o *Outcome) readDigest(last *corev1.ContainerStateTerminated) {
	if last != nil {
		if m := resultMessage.FindStringSubmatch(strings.TrimSpace(last.Message)); m != nil {
			o.Digest, o.Packages, o.Log = m[1], m[2], ""
			o.PushSeconds, _ = strconv.ParseInt(m[3], 10, 64) // digits, or none by an older script
			return
		}
	}
	o.Fault = Environment
	if o.Log == "" {
		o.Log = "the build ended without a digest: its pod is gone, or refit's script cannot run in its image"
	}
}

func faultOf(last *corev1.ContainerStateTerminated) Fault {
	switch {
	case last == nil:
		return Environment
	case last.ExitCode == ExitUser:
		return User
	case last.ExitCode == ExitNamespaces:
		return Namespaces
	}
	return Environment
}

// lastEnd returns the termination of the newest terminated pod.
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

// sortVolumes makes the order of volumes and mounts stable.
func sortVolumes(p *corev1.PodSpec) {
	slices.SortFunc(p.Volumes, func(a, b corev1.Volume) int { return strings.Compare(a.Name, b.Name) })
	slices.SortFunc(p.Containers[0].VolumeMounts, func(a, b corev1.VolumeMount) int { return strings.Compare(a.Name, b.Name) })
}
