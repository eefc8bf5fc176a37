package helm

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/refit-dev/refit/internal/controller"
	"github.com/refit-dev/refit/internal/controller/apitest"
)

// startedAt is when the update of the fixtures started, under the previous version.
const startedAt = "2026-11-20T10:00:00Z"

// newerField is a field that this version does not know; newer is its value.
const newerField, newer = "fromANewerVersion", "stays"

// storePrevious creates the objects that people wrote for the previous version, and the status that
// its controller gave a started update. It returns them as the API server stored them.
func (s *site) storePrevious() []*unstructured.Unstructured {
	s.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", "previous-objects.yaml"))
	if err != nil {
		s.Fatal(err)
	}
	var out []*unstructured.Unstructured
	for doc := range strings.SplitSeq(string(text), "\n---\n") {
		u := &unstructured.Unstructured{}
		if err := yaml.Unmarshal([]byte(doc), &u.Object); err != nil {
			s.Fatal(err)
		}
		s.create(u.Object)
		out = append(out, u)
	}
	s.as(apitest.ControllerUser).patchStatus("ClusterUpdate", "", "to-1.36.3", map[string]any{"phase": "Preparing", "startedAt": startedAt, "observedGeneration": 1,
		"planDigest": "sha256:3166ff0ed91748f44e7440d0970bb42b974a8052655c34878791eac9dcf80518"})
	return out
}

// as is the site seen by another user.
func (s *site) as(user string, groups ...string) *site {
	s.Helper()
	c, err := client.New(apitest.As(s.cfg, user, groups...), client.Options{})
	if err != nil {
		s.Fatal(err)
	}
	other := *s
	other.admin = c
	return &other
}

func refitObject(kind, ns, name string) *unstructured.Unstructured {
	u := &unstructured.Unstructured{}
	u.SetAPIVersion("refit.dev/v1alpha1")
	u.SetKind(kind)
	u.SetNamespace(ns)
	u.SetName(name)
	return u
}

// patchStatus repeats while the API server reads new rights and kinds.
func (s *site) patchStatus(kind, ns, name string, status map[string]any) {
	s.Helper()
	s.patch(func(data client.Patch) error {
		return s.admin.Status().Patch(context.Background(), refitObject(kind, ns, name), data)
	}, map[string]any{"status": status})
}

func (s *site) patch(write func(client.Patch) error, change map[string]any) {
	s.Helper()
	data, err := json.Marshal(change)
	if err != nil {
		s.Fatal(err)
	}
	s.eventually("patch", func() string {
		if err := write(client.RawPatch(types.MergePatchType, data)); err != nil {
			return err.Error()
		}
		return ""
	})
}

// eventually repeats what returns a reason why it is not yet so.
func (s *site) eventually(what string, check func() string) {
	s.Helper()
	why := ""
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(200 * time.Millisecond) {
		if why = check(); why == "" {
			return
		}
	}
	s.Fatalf("%s: %s", what, why)
}

// learnNewerField has the kinds know one field more, as those of a newer version do.
func (s *site) learnNewerField(crd, part string) {
	s.Helper()
	u := &unstructured.Unstructured{}
	u.SetAPIVersion("apiextensions.k8s.io/v1")
	u.SetKind("CustomResourceDefinition")
	u.SetName(crd)
	path := "/spec/versions/0/schema/openAPIV3Schema/properties/" + part + "/properties/" + newerField
	data := `[{"op":"add","path":"` + path + `","value":{"type":"string"}}]`
	if err := s.admin.Patch(context.Background(), u, client.RawPatch(types.JSONPatchType, []byte(data))); err != nil {
		s.Fatal(err)
	}
}

// value is a field of one of refit's objects, nil if it has none.
func (s *site) value(kind, ns, name string, path ...string) any {
	s.Helper()
	u := refitObject(kind, ns, name)
	if err := s.admin.Get(context.Background(), client.ObjectKeyFromObject(u), u); err != nil {
		return nil
	}
	v, _, err := unstructured.NestedFieldNoCopy(u.Object, path...)
	if err != nil {
		s.Fatal(err)
	}
	return v
}

// checkCarriedOn runs this version's controller on the objects of the previous one, while newer
// programs write a field that it does not know. Its writes leave both as they are.
func (s *site) checkCarriedOn(previous []*unstructured.Unstructured) {
	s.Helper()
	s.learnNewerField("clusterupdates.refit.dev", "spec")
	s.learnNewerField("nodeupdates.refit.dev", "status")
	s.patch(func(data client.Patch) error {
		return s.admin.Patch(context.Background(), refitObject("ClusterUpdate", "", "to-1.36.3"), data)
	}, map[string]any{"spec": map[string]any{newerField: newer}})
	s.eventually("the new field", func() string {
		if s.value("ClusterUpdate", "", "to-1.36.3", "spec", newerField) != newer {
			s.patch(func(data client.Patch) error {
				return s.admin.Patch(context.Background(), refitObject("ClusterUpdate", "", "to-1.36.3"), data)
			}, map[string]any{"spec": map[string]any{newerField: newer}})
			return "the API server does not know it yet"
		}
		return ""
	})
	s.addNode("n1")
	s.runController()
	generation := s.value("ClusterUpdate", "", "to-1.36.3", "metadata", "generation")
	s.eventually("the controller carries on the update", func() string {
		if got := s.value("ClusterUpdate", "", "to-1.36.3", "status", "observedGeneration"); got != generation {
			return "its status is of another generation"
		}
		if s.value("UpdatePool", "", "edge", "status", "observedGeneration") == nil {
			return "the pool has no status"
		}
		return ""
	})
	// A newer agent reports a field; the controller then writes the object again.
	own := s.as("system:node:n1", "system:nodes")
	s.eventually("a newer agent reports", func() string {
		u := refitObject("NodeUpdate", "refit-nodes", "n1")
		if err := own.admin.Status().Patch(context.Background(), u, client.RawPatch(types.MergePatchType, []byte(`{"status":{"`+newerField+`":"`+newer+`"}}`))); err != nil {
			return err.Error()
		}
		if s.value("NodeUpdate", "refit-nodes", "n1", "status", newerField) != newer {
			return "the API server does not know it yet"
		}
		return ""
	})
	s.checkKept(previous)
}

// checkKept compares the objects with those that were stored.
func (s *site) checkKept(previous []*unstructured.Unstructured) {
	s.Helper()
	if got := s.value("ClusterUpdate", "", "to-1.36.3", "status", "startedAt"); got != startedAt {
		s.Errorf("the update started at %v, under the previous version at %s", got, startedAt)
	}
	for what, got := range map[string]any{"ClusterUpdate.spec": s.value("ClusterUpdate", "", "to-1.36.3", "spec", newerField), "NodeUpdate.status": s.value("NodeUpdate", "refit-nodes", "n1", "status", newerField)} {
		if got != newer {
			s.Errorf("%s lost the field of a newer version: %v", what, got)
		}
	}
	for _, was := range previous {
		is := refitObject(was.GetKind(), was.GetNamespace(), was.GetName())
		if err := s.admin.Get(context.Background(), client.ObjectKeyFromObject(is), is); err != nil {
			s.Errorf("%s: %v", key(was), err)
			continue
		}
		spec, _, _ := unstructured.NestedMap(is.Object, "spec")
		if wanted, _, _ := unstructured.NestedMap(was.Object, "spec"); !hasAll(spec, wanted) {
			s.Errorf("%s: spec\n%v\nwas\n%v", key(was), spec, wanted)
		}
		// A person can still change it: the new rules of its kind accept what the old ones did.
		// A patch has no resource version: the controller may write the object at the same time.
		label := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"labels":{"changed":"true"}}}`))
		if err := s.admin.Patch(context.Background(), is, label, client.DryRunAll); err != nil {
			s.Errorf("%s cannot be changed any more: %v", key(was), err)
		}
	}
}

// hasAll reports whether a value has all fields of another one; defaults are more.
func hasAll(is, was any) bool {
	switch was := was.(type) {
	case map[string]any:
		have, ok := is.(map[string]any)
		for k, v := range was {
			ok = ok && hasAll(have[k], v)
		}
		return ok
	case []any:
		have, ok := is.([]any)
		ok = ok && len(have) == len(was)
		for i := range was {
			ok = ok && hasAll(have[i], was[i])
		}
		return ok
	}
	return fmt.Sprint(is) == fmt.Sprint(was) // numbers have several types
}

func (s *site) addNode(name string) {
	s.Helper()
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
	m, err := runtime.DefaultUnstructuredConverter.ToUnstructured(node)
	if err != nil {
		s.Fatal(err)
	}
	u := &unstructured.Unstructured{Object: m}
	u.SetAPIVersion("v1")
	u.SetKind("Node")
	s.create(u.Object)
}

// runController runs this version's controller, with the rights of the chart, until the test ends
// it: before the uninstall takes its kinds away.
func (s *site) runController() {
	s.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() {
		err := controller.Run(ctx, controller.Options{Config: apitest.As(s.cfg, apitest.ControllerUser), Identity: "pod-1", Log: logr.Discard(), Registry: prometheus.NewRegistry(), LocalServers: []string{"127.0.0.1"}})
		if err != nil && ctx.Err() == nil {
			s.Errorf("the controller ended: %v", err)
		}
	})
	var once sync.Once
	s.stop = func() { once.Do(func() { cancel(); wg.Wait() }) }
	s.Cleanup(s.stop)
}
