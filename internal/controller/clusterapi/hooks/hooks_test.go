package hooks_test

import (
	"encoding/base64"
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/refit-dev/refit/internal/controller/clusterapi/hooks"
	"github.com/refit-dev/refit/internal/pipeline/capidiff"
)

const v = `"apiVersion":"hooks.runtime.cluster.x-k8s.io/v1alpha1"`

func TestPaths(t *testing.T) {
	t.Parallel()
	want := []string{
		"/hooks.runtime.cluster.x-k8s.io/v1alpha1/canupdatemachine/can-update-machine",
		"/hooks.runtime.cluster.x-k8s.io/v1alpha1/canupdatemachineset/can-update-machineset",
		"/hooks.runtime.cluster.x-k8s.io/v1alpha1/updatemachine/update-machine",
	}
	var got []string
	for _, h := range hooks.All() {
		got = append(got, h.Path())
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error("(-want +got):", diff)
	}
}

// The requests are made by hand after the description of the protocol.
func TestRequests(t *testing.T) {
	t.Parallel()
	machine := `{"kind":"Machine","metadata":{"name":"m"},"spec":{"version":"v1.36.3","n":1.50}}`
	cases := map[string]struct {
		hook hooks.Hook
		body string
		want string // of the error, "" for none
	}{
		"a machine with all its objects":          {hooks.CanUpdateMachine, `{` + v + `,"kind":"CanUpdateMachineRequest","settings":{"a":"b"},"current":{"machine":` + machine + `,"infrastructureMachine":{},"bootstrapConfig":{}},"desired":{"machine":` + machine + `}}`, ""},
		"a set has other keys":                    {hooks.CanUpdateMachineSet, `{` + v + `,"kind":"CanUpdateMachineSetRequest","current":{"machineSet":{},"infrastructureMachineTemplate":{}},"desired":{"machineSet":{},"bootstrapConfigTemplate":null}}`, ""},
		"an update has no current":                {hooks.UpdateMachine, `{` + v + `,"kind":"UpdateMachineRequest","desired":{"machine":` + machine + `}}`, ""},
		"fields of later versions do not matter":  {hooks.UpdateMachine, `{` + v + `,"kind":"UpdateMachineRequest","new":1,"desired":{"machine":` + machine + `,"other":{}}}`, ""},
		"a claim needs a current":                 {hooks.CanUpdateMachine, `{` + v + `,"kind":"CanUpdateMachineRequest","desired":{"machine":` + machine + `}}`, "the body has no machine"},
		"an update needs a machine":               {hooks.UpdateMachine, `{` + v + `,"kind":"UpdateMachineRequest","desired":{}}`, "the body has no machine"},
		"the request of another hook":             {hooks.UpdateMachine, `{` + v + `,"kind":"CanUpdateMachineRequest","desired":{"machine":{}}}`, "not a UpdateMachineRequest of"},
		"another version of the hooks":            {hooks.UpdateMachine, `{"apiVersion":"hooks.runtime.cluster.x-k8s.io/v1alpha9","kind":"UpdateMachineRequest"}`, "not a UpdateMachineRequest of"},
		"no JSON, and nothing of it is repeated":  {hooks.UpdateMachine, `hunter2`, "not a UpdateMachineRequest in JSON"},
		"an object that is a text":                {hooks.UpdateMachine, `{` + v + `,"kind":"UpdateMachineRequest","desired":{"machine":"hunter2"}}`, "machine is not an object"},
		"a body that is too large":                {hooks.UpdateMachine, `{"a":"` + strings.Repeat("hunter2", hooks.MaxBody/7) + `"}`, "larger than"},
		"a bootstrap config that is a number":     {hooks.UpdateMachine, `{` + v + `,"kind":"UpdateMachineRequest","desired":{"machine":{},"bootstrapConfig":12}}`, "bootstrapConfig is not an object"},
		"the book's spelling is not on the wire":  {hooks.UpdateMachine, `{` + v + `,"kind":"UpdateMachineRequest","desired":{"machine":{},"boostrapConfig":12}}`, ""},
		"settings that are no map are no request": {hooks.UpdateMachine, `{` + v + `,"kind":"UpdateMachineRequest","settings":["hunter2"],"desired":{"machine":{}}}`, "in JSON"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r, err := tc.hook.Decode(strings.NewReader(tc.body))
			if tc.want == "" {
				if err != nil {
					t.Fatal(err)
				}
				again, err := tc.hook.Encode(r)
				if err != nil {
					t.Fatal(err)
				}
				r2, err := tc.hook.Decode(strings.NewReader(string(again)))
				if err != nil {
					t.Fatal(err)
				}
				if diff := cmp.Diff(r, r2); diff != "" {
					t.Error("read and written is not the same (-want +got):", diff)
				}
				return
			}
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Fatalf("want %q, got %v", tc.want, err)
			}
			if strings.Contains(err.Error(), "hunter2") {
				t.Errorf("the error holds the body: %v", err)
			}
		})
	}
}

func TestAnswers(t *testing.T) {
	t.Parallel()
	patch := []byte(`[{"op":"replace","path":"/spec/version","value":"v1.36.1"}]`)
	cases := map[string]struct {
		hook   hooks.Hook
		answer hooks.Answer
		want   string
	}{
		// The base64 is that of the description, which was checked against the real library.
		"a claim": {hooks.CanUpdateMachine, hooks.Answer{Patches: map[string]hooks.Patch{capidiff.Machine: {PatchType: hooks.JSONPatch, Patch: patch}}},
			`{"affectsAvailability":true,` + v + `,"kind":"CanUpdateMachineResponse","machinePatch":{"patchType":"JSONPatch","patch":"W3sib3AiOiJyZXBsYWNlIiwicGF0aCI6Ii9zcGVjL3ZlcnNpb24iLCJ2YWx1ZSI6InYxLjM2LjEifV0="},"status":"Success"}`},
		"an empty patch is left out": {hooks.CanUpdateMachineSet, hooks.Answer{Harmless: true, Patches: map[string]hooks.Patch{capidiff.Bootstrap: {PatchType: hooks.JSONPatch}}},
			`{"affectsAvailability":false,` + v + `,"kind":"CanUpdateMachineSetResponse","status":"Success"}`},
		"a refusal carries no patch": {hooks.CanUpdateMachineSet, hooks.Answer{Failed: true, Message: "no", Patches: map[string]hooks.Patch{capidiff.Bootstrap: {PatchType: hooks.JSONPatch, Patch: patch}}},
			`{` + v + `,"kind":"CanUpdateMachineSetResponse","status":"Failure","message":"no","affectsAvailability":true}`},
		"in progress": {hooks.UpdateMachine, hooks.Answer{Message: "moves", RetryAfter: 10},
			`{` + v + `,"kind":"UpdateMachineResponse","status":"Success","message":"moves","retryAfterSeconds":10}`},
		"done says 0": {hooks.UpdateMachine, hooks.Answer{Message: "done"},
			`{` + v + `,"kind":"UpdateMachineResponse","status":"Success","message":"done","retryAfterSeconds":0}`},
		"failed": {hooks.UpdateMachine, hooks.Answer{Failed: true, Message: "look"},
			`{` + v + `,"kind":"UpdateMachineResponse","status":"Failure","message":"look","retryAfterSeconds":0}`},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := tc.hook.EncodeAnswer(tc.answer)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, string(got)); diff != "" {
				t.Error("(-want +got):", diff)
			}
			back, err := tc.hook.DecodeAnswer(got)
			if err != nil || back.Failed != tc.answer.Failed || back.RetryAfter != tc.answer.RetryAfter || back.Message != tc.answer.Message {
				t.Errorf("read back: %+v %v", back, err)
			}
		})
	}
}

func TestAnswersOfOthers(t *testing.T) {
	t.Parallel()
	b64 := base64.StdEncoding.EncodeToString([]byte(`{"spec":{"files":null}}`))
	cases := map[string]struct {
		hook hooks.Hook
		body string
		want string
	}{
		"a merge patch":                  {hooks.CanUpdateMachine, `{` + v + `,"kind":"CanUpdateMachineResponse","status":"Success","bootstrapConfigPatch":{"patchType":"JSONMergePatch","patch":"` + b64 + `"}}`, ""},
		"a patch that is not base64":     {hooks.CanUpdateMachine, `{` + v + `,"kind":"CanUpdateMachineResponse","status":"Success","machinePatch":{"patchType":"JSONPatch","patch":[{"op":"remove"}]}}`, "base64"},
		"no status is not done (trap 1)": {hooks.UpdateMachine, `{` + v + `,"kind":"UpdateMachineResponse"}`, "no status"},
		"a negative wait":                {hooks.UpdateMachine, `{` + v + `,"kind":"UpdateMachineResponse","status":"Success","retryAfterSeconds":-1}`, "negative"},
		"another kind":                   {hooks.UpdateMachine, `{` + v + `,"kind":"DiscoveryResponse","status":"Success"}`, "not a UpdateMachineResponse"},
		"a page of a proxy":              {hooks.UpdateMachine, `<html>`, "not a UpdateMachineResponse"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a, err := tc.hook.DecodeAnswer([]byte(tc.body))
			if (tc.want == "") != (err == nil) || err != nil && !strings.Contains(err.Error(), tc.want) {
				t.Fatalf("want %q, got %v", tc.want, err)
			}
			if err == nil {
				after, err := a.Patches[capidiff.Bootstrap].Apply(map[string]any{"spec": map[string]any{"files": []any{"x"}, "n": json.Number("1")}})
				if diff := cmp.Diff(map[string]any{"spec": map[string]any{"n": json.Number("1")}}, after); diff != "" || err != nil {
					t.Error(diff, err)
				}
			}
		})
	}
}

func TestDiscovery(t *testing.T) {
	t.Parallel()
	got, err := hooks.Discovery()
	if err != nil {
		t.Fatal(err)
	}
	handler := func(name, hook string) string {
		return `{"name":"` + name + `","requestHook":{` + v + `,"hook":"` + hook + `"},"timeoutSeconds":10,"failurePolicy":"Fail"}`
	}
	want := `{` + v + `,"kind":"DiscoveryResponse","status":"Success","handlers":[` + handler("can-update-machine", "CanUpdateMachine") + `,` +
		handler("can-update-machineset", "CanUpdateMachineSet") + `,` + handler("update-machine", "UpdateMachine") + `]}`
	if diff := cmp.Diff(want, string(got)); diff != "" {
		t.Error("(-want +got):", diff)
	}
}

func FuzzDecode(f *testing.F) {
	f.Add([]byte(`{` + v + `,"kind":"UpdateMachineRequest","desired":{"machine":{"spec":{"version":"v1"}}}}`))
	f.Add([]byte(`{` + v + `,"kind":"CanUpdateMachineRequest","current":{"machine":{}},"desired":{"machine":{"spec":null}}}`))
	f.Add([]byte(`null`))
	f.Fuzz(func(t *testing.T, data []byte) {
		for _, h := range hooks.All() {
			r, err := h.Decode(strings.NewReader(string(data)))
			if err != nil {
				continue
			}
			claimed := map[string]bool{}
			pairs, _ := h.Pairs(r)
			for _, o := range pairs {
				for _, c := range capidiff.Differences(o) {
					claimed[c.Path] = true
				}
				after := capidiff.Move(o, claimed)
				moved := o
				moved.Current = after
				if left := capidiff.Differences(moved); len(left) > 0 {
					t.Fatalf("all is claimed, and %v is left", left)
				}
				if p, changed := capidiff.Patch(o.Current, after); changed {
					if _, err := (hooks.Patch{PatchType: hooks.JSONPatch, Patch: p}).Apply(o.Current); err != nil {
						t.Fatalf("%s does not fit: %v", p, err)
					}
				}
			}
		}
	})
}

func FuzzDecodeAnswer(f *testing.F) {
	f.Add([]byte(`{` + v + `,"kind":"UpdateMachineResponse","status":"Success","retryAfterSeconds":0}`))
	f.Add([]byte(`{` + v + `,"kind":"CanUpdateMachineResponse","status":"Success","machinePatch":{"patchType":"JSONPatch","patch":"W10="}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		for _, h := range hooks.All() {
			a, err := h.DecodeAnswer(data)
			if err != nil {
				continue
			}
			for _, p := range a.Patches {
				if after, err := p.Apply(map[string]any{"spec": map[string]any{"version": "v1"}}); err == nil && after == nil {
					t.Fatal("a patched object is gone")
				}
			}
		}
	})
}
