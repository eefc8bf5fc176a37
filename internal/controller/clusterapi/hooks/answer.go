package hooks

import (
	"encoding/json"
	"errors"
	"fmt"

	jsonpatch "github.com/evanphx/json-patch/v5"
)

// Answer is the answer to a hook.
type Answer struct {
	// Failed means, for a claim, that neither an update nor a replacement happens, and
	// for an update, that a person must act.
	Failed bool
	// Message is one sentence that stays the same while nothing changes.
	Message string
	// RetryAfter is in seconds: 0 means that an update is done, else it is in progress.
	RetryAfter int32
	// Patches are by role, only those that change something.
	Patches map[string]Patch
	// Harmless is true if the change does not make the machine unavailable.
	Harmless bool
}

// Patch types.
const (
	JSONPatch      = "JSONPatch"
	JSONMergePatch = "JSONMergePatch"
)

// Patch is the patch of one object. Its bytes are base64 in JSON.
type Patch struct {
	PatchType string `json:"patchType"`
	Patch     []byte `json:"patch"`
}

// Apply returns the object with the patch applied.
func (p Patch) Apply(o map[string]any) (map[string]any, error) {
	if len(p.Patch) == 0 && p.PatchType == "" {
		return o, nil
	}
	doc, err := json.Marshal(o)
	if err != nil {
		return nil, err
	}
	switch p.PatchType {
	case JSONPatch:
		ops, err := jsonpatch.DecodePatch(p.Patch)
		if err != nil {
			return nil, errors.New("not an RFC 6902 patch")
		}
		if doc, err = ops.Apply(doc); err != nil {
			return nil, errors.New("an RFC 6902 patch that does not fit the object")
		}
	case JSONMergePatch:
		if doc, err = jsonpatch.MergePatch(doc, p.Patch); err != nil {
			return nil, errors.New("not an RFC 7386 patch")
		}
	default:
		return nil, fmt.Errorf("a patch of the unknown type %.40q", p.PatchType)
	}
	return Object(doc)
}

// response is an answer in JSON without the patches.
type response struct {
	APIVersion          string `json:"apiVersion"`
	Kind                string `json:"kind"`
	Status              string `json:"status"`
	Message             string `json:"message,omitempty"`
	RetryAfterSeconds   *int32 `json:"retryAfterSeconds,omitempty"`
	AffectsAvailability *bool  `json:"affectsAvailability,omitempty"`
}

const (
	success = "Success"
	failure = "Failure"
)

// EncodeAnswer encodes an answer. It always sets affectsAvailability, because callers that do
// not know the field ignore it. It omits a patch that changes nothing, because callers reject
// an empty one.
func (h Hook) EncodeAnswer(a Answer) ([]byte, error) {
	r := response{APIVersion: APIVersion, Kind: h.Name + "Response", Status: success, Message: a.Message}
	if a.Failed {
		r.Status = failure
	}
	if !h.Claims {
		r.RetryAfterSeconds = &a.RetryAfter
		return json.Marshal(r)
	}
	affects := !a.Harmless
	r.AffectsAvailability = &affects
	data, err := json.Marshal(r)
	if err != nil || a.Failed {
		return data, err
	}
	var body map[string]any
	if err := json.Unmarshal(data, &body); err != nil {
		return nil, err
	}
	for role, p := range a.Patches {
		if len(p.Patch) > 0 {
			body[h.Keys[role]+"Patch"] = p
		}
	}
	return json.Marshal(body)
}

// DecodeAnswer decodes the answer of another extension.
func (h Hook) DecodeAnswer(data []byte) (Answer, error) {
	var r response
	var body map[string]json.RawMessage
	if json.Unmarshal(data, &r) != nil || json.Unmarshal(data, &body) != nil || r.Kind != h.Name+"Response" || r.APIVersion != APIVersion {
		return Answer{}, errors.New("the answer is not a " + h.Name + "Response of " + APIVersion)
	}
	if r.Status != success && r.Status != failure {
		return Answer{}, errors.New("the answer has no status Success or Failure")
	}
	a := Answer{Failed: r.Status == failure, Message: r.Message, Harmless: r.AffectsAvailability != nil && !*r.AffectsAvailability}
	if r.RetryAfterSeconds != nil {
		if a.RetryAfter = *r.RetryAfterSeconds; a.RetryAfter < 0 {
			return Answer{}, errors.New("the answer has a negative retryAfterSeconds")
		}
	}
	var err error
	a.Patches, err = h.patches(body)
	return a, err
}

func (h Hook) patches(body map[string]json.RawMessage) (map[string]Patch, error) {
	out := map[string]Patch{}
	for role, key := range h.Keys {
		raw, ok := body[key+"Patch"]
		if !ok || !h.Claims {
			continue
		}
		var p Patch
		if err := json.Unmarshal(raw, &p); err != nil {
			return nil, errors.New("the answer's " + key + "Patch is not a patchType with a patch in base64")
		}
		out[role] = p
	}
	return out, nil
}

// Discovery is the answer to a discovery request: the handler of each hook. An unreachable hook
// must never count as answered, so the policy is always Fail.
func Discovery() ([]byte, error) {
	type requestHook struct {
		APIVersion string `json:"apiVersion"`
		Hook       string `json:"hook"`
	}
	type handler struct {
		Name           string      `json:"name"`
		RequestHook    requestHook `json:"requestHook"`
		TimeoutSeconds int32       `json:"timeoutSeconds"`
		FailurePolicy  string      `json:"failurePolicy"`
	}
	var handlers []handler
	for _, h := range All() {
		handlers = append(handlers, handler{h.Handler, requestHook{APIVersion, h.Name}, TimeoutSeconds, "Fail"})
	}
	return json.Marshal(struct {
		response
		Handlers []handler `json:"handlers"`
	}{response{APIVersion: APIVersion, Kind: "DiscoveryResponse", Status: success}, handlers})
}

// TimeoutSeconds is how long Cluster API waits for an answer.
const TimeoutSeconds = 10
