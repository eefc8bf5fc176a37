package kube

import (
	"cmp"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
)

// PullRecords is the kubelet's directory of what it pulled, and is pulling.
func (p Paths) PullRecords() string {
	return p.join(cmp.Or(p.kubeletDir, places.KubeletDir) + "/image_manager")
}

// NeverVerify is the kubelet's policy to start pods from a local image without credentials.
const NeverVerify = "NeverVerify"

// UncreditedPulls returns the kubelet's records (files) of pulls of these images, given by the
// runtime's IDs, that name no credentials. A kubelet (1.35 and later) writes one if it stops in the
// middle of a pull and finds the image at its next start, from any source. Then it pulls the image
// again before it starts a pod with it, regardless of the pod's pull policy. Records with
// credentials are not returned.
func UncreditedPulls(p Paths, ids []string) ([]string, error) {
	dir := filepath.Join(p.PullRecords(), "pulled")
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("the kubelet's records of pulled images: %w", err)
	}
	var out []string
	for _, e := range entries {
		path := filepath.Join(dir, e.Name())
		text, err := os.ReadFile(path)
		if err != nil {
			continue // it went meanwhile
		}
		var r struct {
			Image       string                     `json:"imageRef"`
			Credentials map[string]json.RawMessage `json:"credentialMapping"`
		}
		if json.Unmarshal(text, &r) == nil && len(r.Credentials) == 0 && slices.Contains(ids, r.Image) {
			out = append(out, path)
		}
	}
	return out, nil
}

// PullIntents are the kubelet's notes (files) that it is pulling one of these
// names. At its next start it makes of each a record without credentials if the
// image is there.
func PullIntents(p Paths, names []string) (out []string) {
	for _, n := range names {
		path := filepath.Join(p.PullRecords(), "pulling", fmt.Sprintf("sha256-%x", sha256.Sum256([]byte(n))))
		if _, err := os.Stat(path); err == nil {
			out = append(out, path)
		}
	}
	return out
}
