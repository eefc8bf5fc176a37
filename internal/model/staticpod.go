package model

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/refit-dev/refit/internal/distribution"
)

// UpdaterStaticPod gives a static pod another build of its image.
const UpdaterStaticPod = "static-pod"

var kubeadm, _ = distribution.ByName(distribution.Kubeadm)

// KubeadmPod reports whether a static pod is one of kubeadm's own: updater
// kubeadm moves them, with their version. name is without that of the node.
func KubeadmPod(namespace, name string) bool {
	return kubeadm.Writes(namespace, name)
}

// StaticPodImages are the parameters of a step of the updater static-pod.
type StaticPodImages struct {
	// Namespace and Pod, without the node's name.
	Namespace, Pod string
	// To are the images that containers get, by their name; Was those that they
	// have.
	To, Was map[string]string
	// ReadySeconds that the pod may take, 0 for the updater's own limit.
	ReadySeconds int
}

// Names of the parameters.
const (
	paramNamespace = "namespace"
	paramPod       = "pod"
	paramReady     = "readySeconds"
	paramTo        = "to."
	paramWas       = "was."
)

// Params of a step.
func (p *StaticPodImages) Params() map[string]string {
	out := map[string]string{paramNamespace: p.Namespace, paramPod: p.Pod, paramReady: strconv.Itoa(p.ReadySeconds)}
	for c, image := range p.To {
		out[paramTo+c], out[paramWas+c] = image, p.Was[c]
	}
	return out
}

// Read the parameters of a step.
func (p *StaticPodImages) Read(params map[string]string) error {
	*p = StaticPodImages{Namespace: params[paramNamespace], Pod: params[paramPod], To: map[string]string{}, Was: map[string]string{}}
	for k, v := range params {
		if c, ok := strings.CutPrefix(k, paramTo); ok {
			p.To[c], p.Was[c] = v, params[paramWas+c]
			if _, _, digest := strings.Cut(v, "@sha256:"); !digest || strings.ContainsAny(v, " \t\r\n\"'#\\{}[],&*!|>%`") {
				return fmt.Errorf("%.200q is no image with a digest", v)
			}
		}
	}
	if p.Namespace == "" || p.Pod == "" || len(p.To) == 0 {
		return errors.New("the step names no pod or no container")
	}
	var err error
	if p.ReadySeconds, err = strconv.Atoi(params[paramReady]); params[paramReady] != "" && (err != nil || p.ReadySeconds < 0) {
		return fmt.Errorf("%.20q is no number of seconds", params[paramReady])
	}
	return nil
}
