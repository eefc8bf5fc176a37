package hooks

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/refit-dev/refit/internal/pipeline/capidiff"
)

// APIVersion of all requests and answers.
const APIVersion = "hooks.runtime.cluster.x-k8s.io/v1alpha1"

// MaxBody bounds a request: three objects of the size that etcd takes, twice.
const MaxBody = 12 << 20

// Hook is one question of Cluster API.
type Hook struct {
	// Name as the catalogue of Cluster API has it.
	Name string
	// Handler is our name for who answers it, a DNS label.
	Handler string
	// Keys of the objects in a request, by role.
	Keys map[string]string
	// Spec is where the compared part of those objects is.
	Spec []string
	// Claims is true if the answer carries patches.
	Claims bool
}

// The hooks that are answered. Workers are asked about as a set, control planes
// machine by machine.
var (
	CanUpdateMachine = Hook{Name: "CanUpdateMachine", Handler: "can-update-machine", Keys: machineKeys, Spec: capidiff.SpecOfMachine, Claims: true}

	CanUpdateMachineSet = Hook{Name: "CanUpdateMachineSet", Handler: "can-update-machineset", Spec: capidiff.SpecOfTemplate, Claims: true, Keys: map[string]string{
		capidiff.Machine: "machineSet", capidiff.Infrastructure: "infrastructureMachineTemplate", capidiff.Bootstrap: "bootstrapConfigTemplate"}}

	UpdateMachine = Hook{Name: "UpdateMachine", Handler: "update-machine", Keys: machineKeys, Spec: capidiff.SpecOfMachine}
)

var machineKeys = map[string]string{
	capidiff.Machine: "machine", capidiff.Infrastructure: "infrastructureMachine", capidiff.Bootstrap: "bootstrapConfig"}

// All of them, in the order in which discovery names them.
func All() []Hook { return []Hook{CanUpdateMachine, CanUpdateMachineSet, UpdateMachine} }

// Roles in the order in which patches are made.
func Roles() []string { return []string{capidiff.Machine, capidiff.Infrastructure, capidiff.Bootstrap} }

// DiscoveryPath is asked when the extension is registered.
const DiscoveryPath = "/" + APIVersion + "/discovery"

// Path of a hook under the address of the registration.
func (h Hook) Path() string {
	return "/" + APIVersion + "/" + strings.ToLower(h.Name) + "/" + h.Handler
}

// Objects by role; a role may be missing.
type Objects map[string]map[string]any

// Request is a decoded body.
type Request struct {
	Settings         map[string]string
	Current, Desired Objects
}

// Pairs are the objects for the planner. alone names the roles of objects that
// are there on one side only: no patch makes or removes an object.
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

// Decode reads a request. The errors say what is wrong without a word of the body.
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
		return req, fmt.Errorf("the body lacks the %s", h.Keys[capidiff.Machine])
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
			return nil, fmt.Errorf("%s is no object", key)
		}
		out[role] = o
	}
	return out, nil
}

// Object decodes one JSON object with its numbers as they are written.
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

// Encode writes a request, to ask another extension.
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
