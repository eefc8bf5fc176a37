package clusterapi

import (
	"encoding/json"
	"encoding/pem"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/controller/clusterapi/hooks"
	"github.com/refit-dev/refit/internal/pipeline/capidiff"
)

// extension is another extension, with handler names of its own.
type extension struct {
	t *testing.T
	*httptest.Server
	mu sync.Mutex
	// claim answers CanUpdate*, update answers UpdateMachine; nil is not found.
	claim  func(hooks.Hook, hooks.Request) hooks.Answer
	update func(hooks.Request) hooks.Answer
	calls  []string
}

func newExtension(t *testing.T) *extension {
	t.Helper()
	e := &extension{t: t}
	e.Server = httptest.NewTLSServer(e)
	t.Cleanup(e.Close)
	return e
}

func (e *extension) ServeHTTP(rw http.ResponseWriter, r *http.Request) {
	e.mu.Lock()
	defer e.mu.Unlock()
	prefix := "/base/" + hooks.APIVersion + "/"
	path, ok := strings.CutPrefix(r.URL.Path, prefix)
	if !ok {
		http.NotFound(rw, r)
		return
	}
	e.calls = append(e.calls, path)
	if path == "discovery" {
		var handlers []string
		for _, h := range hooks.All() {
			handlers = append(handlers, `{"name":"own-`+strings.ToLower(h.Name)+`","requestHook":{`+apiVersion+`,"hook":"`+h.Name+`"}}`)
		}
		_, _ = io.WriteString(rw, `{`+apiVersion+`,"kind":"DiscoveryResponse","status":"Success","handlers":[`+strings.Join(handlers, ",")+`]}`)
		return
	}
	for _, h := range hooks.All() {
		if path != strings.ToLower(h.Name)+"/own-"+strings.ToLower(h.Name) {
			continue
		}
		req, err := h.Decode(r.Body)
		if err != nil {
			e.t.Errorf("refit sends what is no request: %v", err)
		}
		var a hooks.Answer
		if h.Claims {
			a = e.claim(h, req)
		} else {
			a = e.update(req)
		}
		data, err := h.EncodeAnswer(a)
		if err != nil {
			e.t.Error(err)
		}
		_, _ = rw.Write(data)
		return
	}
	http.NotFound(rw, r)
}

func (e *extension) register(w *testClusters, name string, order int32, paths ...string) {
	e.t.Helper()
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: e.Certificate().Raw})
	u := &v1alpha1.Updater{Spec: v1alpha1.UpdaterSpec{URL: e.URL + "/base/", CABundle: string(ca), Order: order, Paths: paths, TimeoutSeconds: 2, Settings: map[string]string{"own": name}}}
	u.Name = name
	w.create(w.mgmt, u)
}

func (e *extension) count(part string) int {
	e.mu.Lock()
	defer e.mu.Unlock()
	n := 0
	for _, c := range e.calls {
		if strings.Contains(c, part) {
			n++
		}
	}
	return n
}

// memory answers with a merge patch for the memory of the machine.
func memory(h hooks.Hook, r hooks.Request) hooks.Answer {
	vm, _ := inplaceValue(r.Desired[capidiff.Infrastructure], h.Spec, "vm").(map[string]any)
	if vm == nil {
		return hooks.Answer{}
	}
	patch := map[string]any{"vm": map[string]any{"memory": vm["memory"]}}
	for i := len(h.Spec) - 1; i >= 0; i-- {
		patch = map[string]any{h.Spec[i]: patch}
	}
	data, err := json.Marshal(patch)
	if err != nil {
		panic(err)
	}
	return hooks.Answer{Patches: map[string]hooks.Patch{capidiff.Infrastructure: {PatchType: hooks.JSONMergePatch, Patch: data}}}
}

func inplaceValue(o map[string]any, at []string, key string) any {
	for _, k := range at {
		o, _ = o[k].(map[string]any)
	}
	return o[key]
}

// files answers with a JSON patch that puts the desired files in.
func files(h hooks.Hook, r hooks.Request) hooks.Answer {
	value, _ := json.Marshal(inplaceValue(r.Desired[capidiff.Bootstrap], h.Spec, "files"))
	op := `[{"op":"add","path":"/` + strings.Join(h.Spec, "/") + `/files","value":` + string(value) + `}]`
	return hooks.Answer{Harmless: true, Patches: map[string]hooks.Patch{capidiff.Bootstrap: {PatchType: hooks.JSONPatch, Patch: []byte(op)}}}
}

const memoryAndFiles = `{"version":"v1.36.3"}|{"vm":{"memory":8}}|{"files":[{"path":"/etc/motd","content":"hunter2"}]}`

// Opening 1: one extension to Cluster API, many updaters behind it, each with its
// own share; they are called one after the other in the order of the claims.
func TestManyUpdatersBehindOne(t *testing.T) {
	t.Parallel()
	w := newTestClusters(t)
	vm, fs := newExtension(t), newExtension(t)
	var seen hooks.Request
	fs.claim = func(h hooks.Hook, r hooks.Request) hooks.Answer { seen = r; return files(h, r) }
	vm.claim = memory
	vm.register(w, "vm-resizer", 1, "infrastructure")
	fs.register(w, "motd", 2)
	a := w.ask(hooks.CanUpdateMachineSet, claim(`{"common":"x"}`, same, memoryAndFiles))
	if a.Failed || len(a.Patches) != 3 || a.Harmless {
		t.Fatalf("all of it is covered by three updaters: %+v", a)
	}
	if got := string(a.Patches[capidiff.Infrastructure].Patch); got != `[{"op":"replace","path":"/spec/template/spec/vm/memory","value":8}]` {
		t.Errorf("Cluster API gets only the changes of an updater's patch: %s", got)
	}
	if inplaceValue(seen.Current[capidiff.Machine], capidiff.SpecOfTemplate, "version") != newVersion || seen.Settings["own"] != "motd" || seen.Settings["common"] != "x" {
		t.Errorf("a later updater sees the objects as the earlier ones leave them: %+v %v", seen.Current[capidiff.Machine], seen.Settings)
	}
	plan := w.plan("machinedeployment.pool")
	want := []v1alpha1.InPlaceClaim{
		{Updater: "kubernetes", Paths: []string{"machine/spec/version"}, Disruption: "drain"},
		{Updater: "vm-resizer", Paths: []string{"infrastructure/spec/vm/memory"}, Disruption: "drain"},
		{Updater: "motd", Paths: []string{"bootstrap/spec/files[~1etc~1motd]"}, Disruption: "none"},
	}
	if diff := cmp.Diff(want, plan.Status.Claims); diff != "" {
		t.Error("claims (-want +got):", diff)
	}
	if text, _ := json.Marshal(plan); strings.Contains(string(text), "hunter2") {
		t.Error("the plan holds a value")
	}

	// The machine: the node first, then the one, then the other; done only when all are.
	w.machine("m1", newVersion, true)
	w.node("node-m1", oldVersion, oldVersion)
	w.bundle("approved", newVersion, digestA)
	answers := map[string]hooks.Answer{"vm": {Message: "powers off", RetryAfter: 3}, "fs": {Message: "writes", RetryAfter: 100}}
	vm.update = func(r hooks.Request) hooks.Answer {
		if r.Settings[settingPaths] != "infrastructure/spec/vm/memory" {
			t.Errorf("its own share: %v", r.Settings)
		}
		return answers["vm"]
	}
	fs.update = func(hooks.Request) hooks.Answer { return answers["fs"] }
	w.is(w.update("m1", newVersion), false, "was created in its cluster")
	if vm.count("updatemachine/") != 0 {
		t.Error("a later updater waits until the one before is done")
	}
	w.node("node-m1", newVersion, newVersion)
	w.phase(v1alpha1.PhaseDone)
	w.is(w.update("m1", newVersion), false, "Updater vm-resizer: powers off")
	if fs.count("updatemachine/") != 0 || !w.skips("m1") {
		t.Error("the second one waits, and the health checker too")
	}
	answers["vm"] = hooks.Answer{}
	if a := w.update("m1", newVersion); a.RetryAfter != retryWaiting || a.Message != "Updating: Updater motd: writes" {
		t.Errorf("%+v", a)
	}
	answers["fs"] = hooks.Answer{Failed: true, Message: "disk full"}
	w.is(w.update("m1", newVersion), true, "StepFailed: Updater motd: disk full")
	answers["fs"] = hooks.Answer{}
	if a := w.update("m1", newVersion); !done(a) || w.skips("m1") {
		t.Errorf("%+v", a)
	}
	if vm.count("discovery") != 1 {
		t.Errorf("the names of the handlers are asked for once, not %d times", vm.count("discovery"))
	}
}

// Trap 1: an updater that gives no answer is neither yes, nor no, nor done.
func TestAnUpdaterWithoutAnAnswer(t *testing.T) {
	t.Parallel()
	w := newTestClusters(t)
	e := newExtension(t)
	e.claim, e.update = memory, func(hooks.Request) hooks.Answer { return hooks.Answer{} }
	e.register(w, "vm-resizer", 1)
	change := `{"version":"v1.35.4"}|{"vm":{"memory":8}}|{"files":[]}`
	if a := w.ask(hooks.CanUpdateMachineSet, claim("", same, change)); a.Failed {
		t.Fatal(a.Message)
	}
	w.machine("m1", oldVersion, true)
	w.node("node-m1", oldVersion, "") // refit moves nothing here, so its agent need not be there
	e.Close()
	w.is(w.update("m1", oldVersion), false, "UpdaterUnreachable: Updater vm-resizer: it cannot be reached")
	a := w.ask(hooks.CanUpdateMachineSet, claim(`{"fallback":"Replace"}`, same, change))
	if !a.Failed || !strings.Contains(a.Message, "Updater vm-resizer: it cannot be reached") {
		t.Errorf("an unreachable updater replaces a machine: %+v", a)
	}
	if err := w.mgmt.Delete(t.Context(), &v1alpha1.Updater{ObjectMeta: metaOf("vm-resizer")}); err != nil {
		t.Fatal(err)
	}
	// Cluster API asked anew in between: the claims of the last answer stay while machines move.
	w.is(w.update("m1", oldVersion), false, "Updater vm-resizer, which claimed infrastructure/spec/vm/memory, is no longer registered")
}

func TestAnUpdaterThatAnswersWrongly(t *testing.T) {
	t.Parallel()
	patch := func(role, kind, text string) func(hooks.Hook, hooks.Request) hooks.Answer {
		return func(hooks.Hook, hooks.Request) hooks.Answer {
			return hooks.Answer{Patches: map[string]hooks.Patch{role: {PatchType: kind, Patch: []byte(text)}}}
		}
	}
	const change = `{"version":"v1.35.4"}|{"vm":{"memory":8,"cpus":2}}|{"files":[]}`
	cases := map[string]struct {
		claim func(hooks.Hook, hooks.Request) hooks.Answer
		paths []string
		want  string
	}{
		"a value that is not desired": {patch(capidiff.Infrastructure, hooks.JSONMergePatch, `{"spec":{"template":{"spec":{"vm":{"memory":7}}}}}`), nil, "no updater covers infrastructure/spec/vm/cpus, infrastructure/spec/vm/memory"},
		"a part":                      {patch(capidiff.Infrastructure, hooks.JSONMergePatch, `{"spec":{"template":{"spec":{"vm":{"memory":8}}}}}`), nil, "no updater covers infrastructure/spec/vm/cpus:"},
		"what it is not asked about":  {memory, []string{"infrastructure/spec/vm/cpus"}, "infrastructure/spec/vm/memory"},
		"a patch that does not fit":   {patch(capidiff.Infrastructure, hooks.JSONPatch, `[{"op":"remove","path":"/spec/nothing"}]`), nil, "its answer has an RFC 6902 patch that does not fit the object"},
		"a patch that is none":        {patch(capidiff.Infrastructure, hooks.JSONPatch, `{}`), nil, "its answer has not an RFC 6902 patch"},
		"a patch of an unknown type":  {patch(capidiff.Infrastructure, "Best", `[]`), nil, `its answer has a patch of the unknown type "Best"`},
		"a refusal": {func(hooks.Hook, hooks.Request) hooks.Answer {
			return hooks.Answer{Failed: true, Message: "not in winter"}
		}, nil, "Updater vm refuses: not in winter"},
		"an object that it breaks":    {patch(capidiff.Infrastructure, hooks.JSONPatch, `[{"op":"replace","path":"","value":[]}]`), nil, "its answer has not a JSON object"},
		"changes outside of the spec": {patch(capidiff.Infrastructure, hooks.JSONMergePatch, `{"metadata":{"name":"x"}}`), nil, "no updater covers"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newTestClusters(t)
			e := newExtension(t)
			e.claim = tc.claim
			e.register(w, "vm", 0, tc.paths...)
			a := w.ask(hooks.CanUpdateMachineSet, claim("", same, change))
			if !a.Failed || !strings.Contains(a.Message, tc.want) {
				t.Errorf("%q, want %q", a.Message, tc.want)
			}
		})
	}
}

func TestTheOrderOfUpdaters(t *testing.T) {
	t.Parallel()
	w := newTestClusters(t)
	e := newExtension(t)
	for _, x := range []struct {
		name  string
		order int32
	}{{"c", 1}, {"a", 2}, {"b", 1}} {
		e.register(w, x.name, x.order)
	}
	list, err := w.s.externals(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, x := range list {
		names = append(names, x.Name)
	}
	if !slices.Equal(names, []string{"b", "c", "a"}) {
		t.Errorf("%v", names)
	}
	again, _ := w.s.externals(t.Context())
	if again[0].Registered != list[0].Registered {
		t.Error("connections are kept")
	}
}
