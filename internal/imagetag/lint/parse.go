package lint

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/refit-dev/refit/internal/distribution"
	"github.com/refit-dev/refit/internal/model"
)

// Parse reads the objects of a file of manifests: YAML or JSON, any number of
// documents, lists taken apart. Kinds that name no images are left out. What was
// read before an error is returned with it.
func Parse(file string, data []byte) ([]Object, error) {
	var out []Object
	d := yaml.NewDecoder(bytes.NewReader(data))
	for {
		var doc yaml.Node
		err := d.Decode(&doc)
		if errors.Is(err, io.EOF) {
			return out, nil
		}
		if err != nil {
			return out, fmt.Errorf("%s: %w (a template of a chart? render it first: helm template)", file, err)
		}
		if doc.Kind == yaml.DocumentNode && len(doc.Content) > 0 {
			out = append(out, parseAny(file, doc.Content[0])...)
		}
	}
}

func parseAny(file string, n *yaml.Node) []Object {
	if kind := scalar(n, "kind"); strings.HasSuffix(kind, "List") {
		var out []Object
		for _, i := range items(n, "items") {
			out = append(out, parseAny(file, i)...)
		}
		return out
	}
	o := Object{Kind: scalar(n, "kind"), Namespace: scalar(n, "metadata", "namespace"), Name: scalar(n, "metadata", "name"), File: file, Line: n.Line,
		Replicas: -1, Off: OffOf(scalar(n, "metadata", "annotations", OffAnnotation))}
	switch o.Kind {
	case "PodDisruptionBudget":
		o.Namespace = cmp.Or(o.Namespace, "default")
		o.Budget = budgetOf(n)
	case "KubeletConfiguration":
		o.Name = "kubelet"
		o.Kubelet = kubeletOf(n)
	case "MutatingWebhookConfiguration", "ValidatingWebhookConfiguration":
		o.Hooks = hooksOf(n, o.Kind == "MutatingWebhookConfiguration")
	default:
		if !workload(&o, n) {
			return nil
		}
	}
	return []Object{o}
}

// templates is where the pod stands in each kind.
var templates = map[string][]string{
	"Pod": {}, "PodTemplate": {"template"},
	"Deployment": {"spec", "template"}, "ReplicaSet": {"spec", "template"}, "ReplicationController": {"spec", "template"},
	"StatefulSet": {"spec", "template"}, "DaemonSet": {"spec", "template"}, "Job": {"spec", "template"},
	"CronJob": {"spec", "jobTemplate", "spec", "template"},
}

func workload(o *Object, n *yaml.Node) bool {
	path, ok := templates[o.Kind]
	if !ok {
		return false
	}
	pod := at(n, path...)
	spec := at(pod, "spec")
	if spec == nil {
		return false
	}
	o.Namespace = cmp.Or(o.Namespace, "default")
	o.Labels = stringMap(pod, "metadata", "labels")
	o.NodeSelector = stringMap(spec, "nodeSelector")
	for _, t := range items(spec, "tolerations") {
		o.Tolerates = append(o.Tolerates, model.Toleration{Key: scalar(t, "key"), Value: scalar(t, "value"), Effect: scalar(t, "effect"), Any: scalar(t, "operator") == "Exists"})
	}
	o.HostNetwork = isTrue(spec, "hostNetwork")
	o.Static = o.Kind == "Pod" && staticPath(o.File)
	o.Critical = CriticalPod(o.Namespace, scalar(spec, "priorityClassName"), o.Kind, o.HostNetwork)
	rollout(o, n)
	for _, group := range []struct{ list, kind string }{{"initContainers", model.UseInit}, {"containers", model.UseContainer}, {"ephemeralContainers", model.UseEphemeral}} {
		for _, c := range items(spec, group.list) {
			u := useOf(c, group.kind)
			if u.Kind == model.UseInit && scalar(c, "restartPolicy") == "Always" {
				u.Kind = model.UseSidecar
			}
			o.Uses = append(o.Uses, u)
			o.Args = append(append(o.Args, texts(c, "command")...), texts(c, "args")...)
		}
	}
	for _, v := range items(spec, "volumes") {
		if i := at(v, "image"); i != nil {
			o.Uses = append(o.Uses, Use{ImageUse: model.ImageUse{Container: scalar(v, "name"), Kind: model.UseVolume, Image: scalar(i, "reference"),
				Policy: model.PullPolicy(scalar(i, "pullPolicy"))}, Line: lineOf(i, "reference"), PolicyLine: lineOf(i, "pullPolicy")})
		}
	}
	return true
}

func useOf(c *yaml.Node, kind string) Use {
	return Use{ImageUse: model.ImageUse{Container: scalar(c, "name"), Kind: kind, Image: scalar(c, "image"), Policy: model.PullPolicy(scalar(c, "imagePullPolicy"))},
		Line: max(lineOf(c, "image"), c.Line), PolicyLine: lineOf(c, "imagePullPolicy")}
}

// staticPath: manifests that a kubelet reads, of any distribution.
func staticPath(file string) bool {
	return slices.ContainsFunc(distribution.Rows(), func(r distribution.Row) bool {
		return r.Places.StaticPods != "" && strings.Contains("/"+file, r.Places.StaticPods+"/")
	}) || strings.Contains("/"+file, "/static-pods/")
}

// CriticalPod reports whether a node, or the cluster, does not come up without a
// pod: the system's namespace and priority classes, network agents.
func CriticalPod(namespace, priorityClass, kind string, hostNetwork bool) bool {
	return namespace == "kube-system" || strings.HasPrefix(priorityClass, "system-") || kind == "DaemonSet" && hostNetwork
}

// rollout: how many there are, and what comes first.
func rollout(o *Object, n *yaml.Node) {
	switch o.Kind {
	case "Deployment":
		o.Replicas = number(n, 1, "spec", "replicas")
		surge := scalar(n, "spec", "strategy", "rollingUpdate", "maxSurge")
		o.Surges = scalar(n, "spec", "strategy", "type") != "Recreate" && surge != "0" && surge != "0%"
	case "StatefulSet":
		o.Replicas = number(n, 1, "spec", "replicas")
	case "DaemonSet":
		surge := scalar(n, "spec", "updateStrategy", "rollingUpdate", "maxSurge")
		o.AfterKill = scalar(n, "spec", "updateStrategy", "type") != "OnDelete" && (surge == "" || surge == "0" || surge == "0%")
	}
}

func hooksOf(n *yaml.Node, mutating bool) []Hook {
	var out []Hook
	for _, w := range items(n, "webhooks") {
		h := Hook{Name: scalar(w, "name"), Mutating: mutating, FailsClosed: scalar(w, "failurePolicy") != "Ignore", Line: lineOf(w, "name")}
		if s := at(w, "clientConfig", "service"); s != nil {
			h.Service = scalar(s, "namespace") + "/" + scalar(s, "name")
		}
		for _, r := range items(w, "rules") {
			h.AsksPods = h.AsksPods || AsksPods(texts(r, "operations"), texts(r, "apiGroups"), texts(r, "resources"))
		}
		out = append(out, h)
	}
	return out
}

func budgetOf(n *yaml.Node) *Budget {
	b := &Budget{Labels: stringMap(n, "spec", "selector", "matchLabels"), MinAvailable: number(n, -1, "spec", "minAvailable")}
	none := scalar(n, "spec", "maxUnavailable")
	b.AllowsNone = none == "0" || none == "0%" || scalar(n, "spec", "minAvailable") == "100%"
	return b
}

func kubeletOf(n *yaml.Node) *Kubelet {
	k := &Kubelet{Verification: scalar(n, "imagePullCredentialsVerificationPolicy"), VerificationLine: lineOf(n, "imagePullCredentialsVerificationPolicy"),
		Allowed: texts(n, "preloadedImagesVerificationAllowlist"), MaxAgeLine: lineOf(n, "imageMaximumGCAge")}
	if age, err := time.ParseDuration(scalar(n, "imageMaximumGCAge")); err == nil {
		k.MaxAge = int64(age.Seconds())
	}
	return k
}
