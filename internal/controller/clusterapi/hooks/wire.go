package hooks

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/refit-dev/refit/internal/pipeline/capidiff"
)

// APIVersion is that of all requests and answers.
const APIVersion = "hooks.runtime.cluster.x-k8s.io/v1alpha1"

// MaxBody bounds a request: three objects of the largest size in etcd, twice.
const MaxBody = 12 << 20

// Hook is one runtime hook of Cluster API.
type Hook struct {
	// Name is that in Cluster API's hook catalog.
	Name string
	// Handler is refit's handler name for it, a DNS label.
	Handler string
	// Keys are the JSON keys of the objects in a request, by role.
	Keys map[string]string
	// Spec is the path of the compared part of those objects.
	Spec []string
	// Claims is true if the answer carries patches.
	Claims bool
}

// The hooks that refit answers. Cluster API asks about workers as a set, and about
// control planes machine by machine.
var (
	CanUpdateMachine = Hook{Name: "CanUpdateMachine", Handler: "can-update-machine", Keys: machineKeys, Spec: capidiff.SpecOfMachine, Claims: true}

	CanUpdateMachineSet = Hook{Name: "CanUpdateMachineSet", Handler: "can-update-machineset", Spec: capidiff.SpecOfTemplate, Claims: true, Keys: map[string]string{
		capidiff.Machine: "machineSet", capidiff.Infrastructure: "infrastructureMachineTemplate", capidiff.Bootstrap: "bootstrapConfigTemplate"}}

	UpdateMachine = Hook{Name: "UpdateMachine", Handler: "update-machine", Keys: machineKeys, Spec: capidiff.SpecOfMachine}
)

var machineKeys = map[string]string{
	capidiff.Machine: "machine", capidiff.Infrastructure: "infrastructureMachine", capidiff.Bootstrap: "bootstrapConfig"}

// All returns the hooks in the order in which discovery lists them.
func All() []Hook { return []Hook{CanUpdateMachine, CanUpdateMachineSet, UpdateMachine} }

// Roles returns the roles in the order in which patches are created.
func Roles() []string { return []string{capidiff.Machine, capidiff.Infrastructure, capidiff.Bootstrap} }

// DiscoveryPath is called when the extension is registered.
const DiscoveryPath = "/" + APIVersion + "/discovery"

// Path is the path of a hook below the registered URL.
func (h Hook) Path() string {
	return "/" + APIVersion + "/" + strings.ToLower(h.Name) + "/" + h.Handler
}

// Objects are by role; a role may be missing.
type Objects map[string]map[string]any

// Request is a decoded body.
type Request struct {
	Settings         map[string]string
	Current, Desired Objects
}

// Pairs returns the objects for the planner. alone are the roles of objects that only one side
// has: no patch creates or removes an object.
func (h Hook) Pairs(r Request) (pairs []capidiff.Object, alone []string) {
	for _, role := range Roles() {
		switch c, d := r.Current[role], r.Desired[role]; {
		case c != nil && d != nil:
			pairs = append(pairs, capidiff.Object{Role: role, Spec: h.Spec, Current: c, Desired: d})
		case c != nil || d != nil:
			alone = append(alone, role)
		}
	}
	return pairs, alone
}

// Decode decodes a request. Its errors contain no part of the body.
func (h Hook) Decode(r io.Reader) (Request, error) {
	var req Request
	data, err := io.ReadAll(io.LimitReader(r, MaxBody+1))
	switch {
	case err != nil:
		return req, errors.New("the body ended early")
	case len(data) > MaxBody:
		return req, fmt.Errorf("the body is larger than %d bytes", MaxBody)
	}
	var body struct {
		APIVersion string                     `json:"apiVersion"`
		Kind       string                     `json:"kind"`
		Settings   map[string]string          `json:"settings"`
		Current    map[string]json.RawMessage `json:"current"`
		Desired    map[string]json.RawMessage `json:"desired"`
	}
	if err := json.Unmarshal(data, &body); err != nil {
		return req, errors.New("the body is not a " + h.Name + "Request in JSON")
	}
	if body.Kind != h.Name+"Request" || body.APIVersion != APIVersion {
		return req, errors.New("the body is not a " + h.Name + "Request of " + APIVersion)
	}
	req.Settings = body.Settings
	if req.Desired, err = h.objects(body.Desired); err != nil {
		return req, fmt.Errorf("desired: %w", err)
	}
	if req.Current, err = h.objects(body.Current); err != nil {
		return req, fmt.Errorf("current: %w", err)
	}
	if req.Desired[capidiff.Machine] == nil || (h.Claims && req.Current[capidiff.Machine] == nil) {
		return req, fmt.Errorf("the body has no %s", h.Keys[capidiff.Machine])
	}
	return req, nil
}

func (h Hook) objects(raw map[string]json.RawMessage) (Objects, error) {
	out := Objects{}
	for role, key := range h.Keys {
		data, ok := raw[key]
		if !ok || string(data) == "null" {
			continue
		}
		o, err := Object(data)
		if err != nil {
			return nil, fmt.Errorf("%s is not an object", key)
		}
		out[role] = o
	}
	return out, nil
}

// Object decodes one JSON object and keeps its numbers as written.
func Object(data []byte) (map[string]any, error) {
	dec := json.NewDecoder(strings.NewReader(string(data)))
	dec.UseNumber()
	var o map[string]any
	if err := dec.Decode(&o); err != nil {
		return nil, errors.New("not a JSON object")
	}
	if o == nil {
		return nil, errors.New("null")
	}
	return o, nil
}

// Encode encodes a request to another extension.
func (h Hook) Encode(r Request) ([]byte, error) {
	body := map[string]any{"apiVersion": APIVersion, "kind": h.Name + "Request"}
	if len(r.Settings) > 0 {
		body["settings"] = r.Settings
	}
	for name, objects := range map[string]Objects{"current": r.Current, "desired": r.Desired} {
		named := map[string]any{}
		for role, o := range objects {
			named[h.Keys[role]] = o
		}
		if len(named) > 0 {
			body[name] = named
		}
	}
	return json.Marshal(body)
}
