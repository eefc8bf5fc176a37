package cli

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1alpha1 "github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/text"
)

// hidden replaces what must not leave the site; hiddenBytes does so in a field of bytes, which must
// stay readable.
const hidden, hiddenBytes = "[hidden]", "W2hpZGRlbl0="

// slimObject drops what explains nothing or may hold a secret by its nature: the rest is searched
// for secrets by hideIn.
func slimObject(o client.Object) {
	o.SetManagedFields(nil)
	o.SetAnnotations(keptAnnotations(o.GetAnnotations()))
	switch o := o.(type) {
	case *corev1.Pod:
		slimPod(o)
	case *corev1.Node:
		o.Status.Images = nil
	case *v1alpha1.Content:
		// A plan is compared with its digest, so it stays as it is; supportItem leaves it out
		// if it looks like it has a secret.
		if o.Type != v1alpha1.ContentPlan && o.Type != v1alpha1.ContentPins {
			o.Data = fmt.Sprintf("[hidden: %d bytes]", len(o.Data))
		}
	}
}

// annotationDomains are those whose annotations refit and Kubernetes write; others may hold anything.
var annotationDomains = []string{"refit.dev", "kubernetes.io", "x-k8s.io", "k8s.io"}

func keptAnnotations(all map[string]string) map[string]string {
	out := map[string]string{}
	for key, value := range all {
		domain, _, _ := strings.Cut(key, "/")
		for _, d := range annotationDomains {
			if (domain == d || strings.HasSuffix(domain, "."+d)) && key != corev1.LastAppliedConfigAnnotation {
				out[key] = value
			}
		}
	}
	if len(out) == 0 {
		return nil
	}
	return out
}

// slimPod keeps what decides about its eviction, and what its containers do: no commands,
// variables and mounts.
func slimPod(p *corev1.Pod) {
	spec := corev1.PodSpec{NodeName: p.Spec.NodeName, TerminationGracePeriodSeconds: p.Spec.TerminationGracePeriodSeconds,
		PriorityClassName: p.Spec.PriorityClassName, Priority: p.Spec.Priority, Tolerations: p.Spec.Tolerations}
	for _, c := range p.Spec.Containers {
		spec.Containers = append(spec.Containers, corev1.Container{Name: c.Name, Image: c.Image})
	}
	for _, v := range p.Spec.Volumes {
		if v.EmptyDir != nil {
			spec.Volumes = append(spec.Volumes, corev1.Volume{Name: v.Name, VolumeSource: corev1.VolumeSource{EmptyDir: v.EmptyDir}})
		}
	}
	p.Spec = spec
}

// secretField is the name of a field whose text is a secret or a file of the site.
var secretField = regexp.MustCompile(`(?i)^(inline|contents|containerfile|passwordhash|password|passwd|token|secret|api-?key|private-?key|client-?secret)$`)

// hideIn replaces in a decoded JSON value the texts that look like secrets, and counts them.
func hideIn(value any, key string) (any, int) {
	switch v := value.(type) {
	case string:
		out := text.HideSecrets(v)
		if v != "" && secretField.MatchString(key) {
			out = hidden
		}
		if v != "" && key == "base64" {
			out = hiddenBytes
		}
		if out != v {
			return out, 1
		}
	case []any:
		total := 0
		for i := range v {
			var n int
			v[i], n = hideIn(v[i], key)
			total += n
		}
		return v, total
	case map[string]any:
		total := 0
		for k := range v {
			var n int
			v[k], n = hideIn(v[k], k)
			total += n
		}
		return v, total
	}
	return value, 0
}

// supportItem is an object as an archive has it, and how many texts were hidden in it. A plan that
// looks like it has a secret has no item.
func supportItem(o client.Object) (json.RawMessage, int, error) {
	slimObject(o)
	if c, ok := o.(*v1alpha1.Content); ok && c.Type == v1alpha1.ContentPlan {
		if text.HideSecrets(c.Data) != c.Data {
			return nil, 1, nil
		}
		c.TypeMeta = metav1.TypeMeta{}
		data, err := json.Marshal(c)
		return data, 0, err
	}
	m, err := runtime.DefaultUnstructuredConverter.ToUnstructured(o)
	if err != nil {
		return nil, 0, err
	}
	_, n := hideIn(m, "")
	data, err := json.Marshal(m)
	return data, n, err
}
