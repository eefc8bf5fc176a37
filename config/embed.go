package config

import (
	"bytes"
	"embed"
	"fmt"
	"io/fs"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"
)

//go:embed crd namespaces rbac admission controller daemonset cluster-api boot-images joins status-page alerts monitoring offline
var files embed.FS

// imagePlaceholder stands for the image in the files.
const imagePlaceholder = "REFIT_IMAGE"

// Manifests returns every object of an installation in the order to apply them.
// Kinds and namespaces come first, then access rules and admission policies, then the
// controller with the given image.
func Manifests(image string) ([]*unstructured.Unstructured, error) {
	if image == "" {
		return nil, fmt.Errorf("manifests: no image given: name refit's image as the bundle does")
	}
	rules, err := Rules()
	if err != nil {
		return nil, err
	}
	controller, err := load(image, "controller")
	if err != nil {
		return nil, err
	}
	return append(rules, controller...), nil
}

// Static returns every object of an installation where nodes can pull the image: Manifests, and
// the DaemonSet that installs the agent.
func Static(image string) ([]*unstructured.Unstructured, error) {
	out, err := Manifests(image)
	if err != nil {
		return nil, err
	}
	agents, err := DaemonSet(image)
	return append(out, agents...), err
}

// Rules returns what Manifests does but for the controller: enough for agents
// and people to work with the kinds.
func Rules() ([]*unstructured.Unstructured, error) {
	return load("", "crd", "namespaces", "rbac", "admission")
}

// DaemonSet returns what installs the agent on every node where images can be
// pulled. Manifests does not include it.
func DaemonSet(image string) ([]*unstructured.Unstructured, error) { return load(image, "daemonset") }

// CRDs returns the kinds alone.
func CRDs() ([]*unstructured.Unstructured, error) { return load("", "crd") }

// ClusterAPI returns what is added to an installation in a management cluster, the
// registration with Cluster API, and what is added to one in a workload cluster.
// Manifests includes none of it.
func ClusterAPI() (management, registration, workload []*unstructured.Unstructured, err error) {
	for _, p := range []struct {
		file string
		to   *[]*unstructured.Unstructured
	}{{"management", &management}, {"extensionconfig", &registration}, {"workload", &workload}} {
		if *p.to, err = parse("cluster-api/"+p.file+".yaml", ""); err != nil {
			return nil, nil, nil, err
		}
	}
	return management, registration, workload, nil
}

// Joins returns what the server for machines that join needs. Manifests includes
// none of it.
func Joins() ([]*unstructured.Unstructured, error) { return load("", "joins") }

// StatusPage returns the roles of the readers of the status page. Manifests includes none of them.
func StatusPage() ([]*unstructured.Unstructured, error) { return load("", "status-page") }

// BootImages returns the rights on machine managers and templates of Cluster API,
// OpenShift and Karpenter. Manifests includes none of them.
func BootImages() ([]*unstructured.Unstructured, error) { return load("", "boot-images") }

// MutationVersion is the version of MutatingAdmissionPolicy that an API server serves
// (v1, else v1beta1), empty if it has none.
func MutationVersion(m meta.RESTMapper) (string, error) {
	all, err := m.RESTMappings(schema.GroupKind{Group: "admissionregistration.k8s.io", Kind: "MutatingAdmissionPolicy"})
	if meta.IsNoMatchError(err) {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("cannot ask which admission policies are served: %w", err)
	}
	for _, version := range []string{"v1", "v1beta1"} {
		for _, served := range all {
			if served.GroupVersionKind.Version == version {
				return version, nil
			}
		}
	}
	return "", nil
}

// IfNotPresent returns the admission policy that has new pods start from images that are
// on the node, in a version that the API server serves (v1, v1beta1). Manifests
// does not include it.
func IfNotPresent(version string) ([]*unstructured.Unstructured, error) {
	objects, err := load("", "offline")
	for _, o := range objects {
		o.SetAPIVersion("admissionregistration.k8s.io/" + version)
	}
	return objects, err
}

// Alerts returns rules for the Prometheus operator. Manifests includes none of them.
func Alerts() ([]*unstructured.Unstructured, error) { return load("", "alerts") }

// Monitoring returns how the Prometheus operator finds the controller's metrics. Manifests does not
// include it.
func Monitoring() ([]*unstructured.Unstructured, error) {
	return parse("monitoring/servicemonitor.yaml", "")
}

// MonitoringText returns Alerts and Monitoring as one file, with their comments.
func MonitoringText() ([]byte, error) {
	var out []byte
	for _, name := range []string{"monitoring/servicemonitor.yaml", "alerts/refit.yaml", "alerts/boot-images.yaml"} {
		text, err := files.ReadFile(name)
		if err != nil {
			return nil, fmt.Errorf("manifests: %w", err)
		}
		if len(out) > 0 {
			out = append(out, "---\n"...)
		}
		out = append(out, text...)
	}
	return out, nil
}

// Dashboard returns the dashboard for Grafana.
func Dashboard() ([]byte, error) { return files.ReadFile("monitoring/dashboard.json") }

// AlertsText is the boot images' part of Alerts as a file, with its comments.
func AlertsText() ([]byte, error) { return files.ReadFile("alerts/boot-images.yaml") }

func load(image string, dirs ...string) ([]*unstructured.Unstructured, error) {
	var out []*unstructured.Unstructured
	for _, dir := range dirs {
		entries, err := fs.ReadDir(files, dir)
		if err != nil {
			return nil, fmt.Errorf("manifests: %w", err)
		}
		for _, e := range entries {
			objs, err := parse(dir+"/"+e.Name(), image)
			if err != nil {
				return nil, err
			}
			out = append(out, objs...)
		}
	}
	return out, nil
}

func parse(name, image string) ([]*unstructured.Unstructured, error) {
	text, err := files.ReadFile(name)
	if err != nil {
		return nil, fmt.Errorf("manifests: %w", err)
	}
	text = bytes.ReplaceAll(text, []byte(imagePlaceholder), []byte(image))
	var out []*unstructured.Unstructured
	for doc := range strings.SplitSeq(string(text), "\n---\n") {
		u := &unstructured.Unstructured{}
		if err := yaml.Unmarshal([]byte(doc), &u.Object); err != nil {
			return nil, fmt.Errorf("manifests: %s: %w", name, err)
		}
		if len(u.Object) > 0 {
			out = append(out, u)
		}
	}
	return out, nil
}
