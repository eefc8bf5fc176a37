package auditfacts

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
)

// ReadDump reads objects as `kubectl get nodes,pods,... -A -o json` prints them: one list of
// any kinds, or several documents. Other kinds are skipped.
func ReadDump(r io.Reader) (Objects, error) {
	var o Objects
	d := json.NewDecoder(r)
	for {
		var doc json.RawMessage
		err := d.Decode(&doc)
		if errors.Is(err, io.EOF) {
			return o, nil
		}
		if err != nil {
			return o, fmt.Errorf("the input is not JSON of Kubernetes objects (kubectl get nodes,pods -A -o json): %w", err)
		}
		if err := o.addDocument(doc); err != nil {
			return o, err
		}
	}
}

// document is a list, or one object.
type document struct {
	Kind  string            `json:"kind"`
	Items []json.RawMessage `json:"items"`
}

func (o *Objects) addDocument(doc json.RawMessage) error {
	var list document
	if err := json.Unmarshal(doc, &list); err != nil {
		return fmt.Errorf("a document is not an object: %w", err)
	}
	if list.Items == nil {
		return o.addObject(list.Kind, doc)
	}
	for i, item := range list.Items {
		kind, err := kindOf(item)
		if err == nil {
			err = o.addObject(kind, item)
		}
		if err != nil {
			return fmt.Errorf("item %d: %w", i, err)
		}
	}
	return nil
}

// kindOf reads an object only up to its kind: kubectl prints it second.
func kindOf(item json.RawMessage) (string, error) {
	d := json.NewDecoder(bytes.NewReader(item))
	if open, err := d.Token(); err != nil || open != json.Delim('{') {
		return "", fmt.Errorf("it is not an object: %.20s", item)
	}
	for d.More() {
		key, err := d.Token()
		if err != nil {
			return "", err
		}
		if key == "kind" {
			var kind string
			err := d.Decode(&kind)
			return kind, err
		}
		var skip json.RawMessage
		if err := d.Decode(&skip); err != nil {
			return "", err
		}
	}
	return "", nil
}

func (o *Objects) addObject(kind string, item json.RawMessage) error {
	switch kind {
	case "Node":
		return decode(item, &o.Nodes)
	case "Pod":
		return decode(item, &o.Pods)
	case "NodeUpdate":
		return decode(item, &o.NodeUpdates)
	case "Content":
		return decode(item, &o.Contents)
	}
	return o.addWorkload(kind, item)
}

func (o *Objects) addWorkload(kind string, item json.RawMessage) error {
	switch kind {
	case "Deployment":
		return decode(item, &o.Deployments)
	case "DaemonSet":
		return decode(item, &o.DaemonSets)
	case "StatefulSet":
		return decode(item, &o.StatefulSet)
	case "ImageTrack":
		return decode(item, &o.Tracks)
	case "CronJob":
		return decode(item, &o.CronJobs)
	case "PodDisruptionBudget":
		return decode(item, &o.Budgets)
	case "MutatingWebhookConfiguration":
		return decode(item, &o.Mutating)
	case "ValidatingWebhookConfiguration":
		return decode(item, &o.Validating)
	}
	return nil
}

func decode[T any](item json.RawMessage, into *[]T) error {
	*into = append(*into, *new(T))
	if err := json.Unmarshal(item, &(*into)[len(*into)-1]); err != nil {
		return fmt.Errorf("%T: %w", *new(T), err)
	}
	return nil
}
