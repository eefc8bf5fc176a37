package clusterresources

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"sort"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/yaml"

	"github.com/refit-dev/refit/internal/pipeline/bundle"
)

// Limits of a payload, which people write.
const (
	maxBytes   = 16 << 20
	maxObjects = 2000
)

// rank is the order in which kinds are applied; others come in the middle.
var rank = map[string]int{
	"CustomResourceDefinition": 0, "Namespace": 1, "PriorityClass": 2, "ResourceQuota": 2, "LimitRange": 2, "ServiceAccount": 3,
	"ClusterRole": 4, "Role": 4, "ClusterRoleBinding": 5, "RoleBinding": 5, "ConfigMap": 6, "Service": 7,
	"Deployment": 9, "StatefulSet": 9, "DaemonSet": 9, "Job": 9, "CronJob": 9,
	"APIService": 10, "ValidatingWebhookConfiguration": 11, "MutatingWebhookConfiguration": 11,
}

func rankOf(u *unstructured.Unstructured) int {
	if r, ok := rank[u.GetKind()]; ok {
		return r
	}
	return 8
}

// parse reads a payload of YAML or JSON documents in the order in which they are applied; lists
// are split. An error names the invalid document.
func parse(data []byte) ([]*unstructured.Unstructured, error) {
	if len(data) > maxBytes {
		return nil, fmt.Errorf("the payload resources is larger than %d bytes", maxBytes)
	}
	var out []*unstructured.Unstructured
	r := yaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(data)))
	for n := 1; ; n++ {
		doc, err := r.Read()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, fmt.Errorf("document %d of the payload resources: %w", n, err)
		}
		m := map[string]any{}
		if err := yaml.Unmarshal(doc, &m); err != nil {
			return nil, fmt.Errorf("document %d of the payload resources is not an object: %w", n, err)
		}
		if len(m) == 0 {
			continue
		}
		if out, err = appendObject(out, &unstructured.Unstructured{Object: m}); err != nil {
			return nil, fmt.Errorf("document %d of the payload resources: %w", n, err)
		}
	}
	if err := checkUnique(out); err != nil {
		return nil, err
	}
	sort.SliceStable(out, func(i, j int) bool { return rankOf(out[i]) < rankOf(out[j]) })
	return out, nil
}

func appendObject(out []*unstructured.Unstructured, u *unstructured.Unstructured) ([]*unstructured.Unstructured, error) {
	if u.IsList() {
		err := u.EachListItem(func(o runtime.Object) error {
			item, ok := o.(*unstructured.Unstructured)
			if !ok {
				return errors.New("an item of a list is not an object")
			}
			var err error
			out, err = appendObject(out, item)
			return err
		})
		return out, err
	}
	if why := bundle.RefusedResource(u.GetAPIVersion(), u.GetKind(), u.GetName()); why != "" {
		return nil, errors.New(why)
	}
	if len(out) >= maxObjects {
		return nil, fmt.Errorf("there are more than %d objects", maxObjects)
	}
	return append(out, u), nil
}

// objectName identifies an object in messages and comparisons.
func objectName(u *unstructured.Unstructured) string {
	if ns := u.GetNamespace(); ns != "" {
		return u.GetKind() + "/" + ns + "/" + u.GetName()
	}
	return u.GetKind() + "/" + u.GetName()
}

func checkUnique(all []*unstructured.Unstructured) error {
	seen := map[string]bool{}
	for _, u := range all {
		key := u.GroupVersionKind().Group + " " + objectName(u)
		if seen[key] {
			return fmt.Errorf("%s is in the payload resources twice", objectName(u))
		}
		seen[key] = true
	}
	return nil
}
