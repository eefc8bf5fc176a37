package config

import (
	"encoding/json"
	"slices"
	"testing"

	jsonpatch "github.com/evanphx/json-patch/v5"
	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	"sigs.k8s.io/yaml"
)

// The patches of docs/reference/cluster-api.md fit the Deployments they are for.
func TestPatchesForClusterAPI(t *testing.T) {
	t.Parallel()
	patch := func(name string) []byte {
		data, err := files.ReadFile("cluster-api/" + name)
		if err != nil {
			t.Fatal(err)
		}
		if data, err = yaml.YAMLToJSON(data); err != nil {
			t.Fatal(err)
		}
		return data
	}
	objects, err := load("example.com/refit:v1", "controller")
	if err != nil {
		t.Fatal(err)
	}
	var before []byte
	for _, o := range objects {
		if o.GetKind() == "Deployment" {
			if before, err = json.Marshal(o); err != nil {
				t.Fatal(err)
			}
		}
	}
	after, err := strategicpatch.StrategicMergePatch(before, patch("controller-patch.yaml"), appsv1.Deployment{})
	if err != nil {
		t.Fatal(err)
	}
	var d appsv1.Deployment
	if err := json.Unmarshal(after, &d); err != nil {
		t.Fatal(err)
	}
	spec := d.Spec.Template.Spec
	if len(spec.Containers) != 1 || !slices.Contains(spec.Containers[0].Args, "-cluster-api-client-ca=/etc/refit-callers/ca.crt") || spec.Containers[0].Image == "" {
		t.Errorf("%+v", spec.Containers)
	}
	manager := []byte(`{"spec":{"template":{"spec":{"containers":[{"name":"manager","args":["--leader-elect"],"volumeMounts":[{"name":"cert"}]}],"volumes":[{"name":"cert"}]}}}}`)
	p, err := jsonpatch.DecodePatch(patch("caller-patch.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	after, err = p.Apply(manager)
	if err != nil {
		t.Fatal(err)
	}
	d = appsv1.Deployment{}
	if err := json.Unmarshal(after, &d); err != nil {
		t.Fatal(err)
	}
	if c := d.Spec.Template.Spec.Containers[0]; len(c.Args) != 3 || len(c.VolumeMounts) != 2 || len(d.Spec.Template.Spec.Volumes) != 2 {
		t.Errorf("%+v", d.Spec.Template.Spec)
	}
}
