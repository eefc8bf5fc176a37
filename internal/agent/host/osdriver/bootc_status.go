package osdriver

import (
	"encoding/json"
	"fmt"
	"time"
)

// BootcHost is the document of `bootc status`, of format v1 (0 is the same). Only what is
// read is here; what a newer version adds is ignored, and everything may be null.
type BootcHost struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Spec       struct {
		Image *bootcReference `json:"image"`
		// BootOrder is default or rollback.
		BootOrder string `json:"bootOrder"`
	} `json:"spec"`
	Status struct {
		Staged           *bootcEntry  `json:"staged"`
		Booted           *bootcEntry  `json:"booted"`
		Rollback         *bootcEntry  `json:"rollback"`
		OtherDeployments []bootcEntry `json:"otherDeployments"`
		RollbackQueued   bool         `json:"rollbackQueued"`
		// Type is BootcHost, null unless booted from a container image.
		Type       *string       `json:"type"`
		UsrOverlay *bootcOverlay `json:"usrOverlay"`
		ReadOnly   bool          `json:"readOnly"`
	} `json:"status"`
}

// bootcEntry is one deployment.
type bootcEntry struct {
	Image             *bootcImage `json:"image"`
	CachedUpdate      *bootcImage `json:"cachedUpdate"`
	Incompatible      bool        `json:"incompatible"`
	Pinned            bool        `json:"pinned"`
	SoftRebootCapable bool        `json:"softRebootCapable"`
	DownloadOnly      bool        `json:"downloadOnly"`
	Store             *string     `json:"store"`
	OSTree            *struct {
		Checksum     string `json:"checksum"`
		DeploySerial int    `json:"deploySerial"`
		Stateroot    string `json:"stateroot"`
	} `json:"ostree"`
	Composefs *struct {
		Verity string `json:"verity"`
	} `json:"composefs"`
}

// bootcImage is an image that a deployment is from, or could be updated to.
type bootcImage struct {
	Image        bootcReference `json:"image"`
	Version      *string        `json:"version"`
	Timestamp    *time.Time     `json:"timestamp"`
	ImageDigest  string         `json:"imageDigest"`
	Architecture string         `json:"architecture"`
}

// bootcReference is where an image comes from.
type bootcReference struct {
	Image     string          `json:"image"`
	Transport string          `json:"transport"`
	Signature *bootcSignature `json:"signature"`
}

// bootcSignature is how an image is verified: a word, or an object with one.
type bootcSignature struct {
	// Kind is containerPolicy, insecure or ostreeRemote; Remote goes with the last.
	Kind, Remote string
}

// UnmarshalJSON reads both forms.
func (s *bootcSignature) UnmarshalJSON(b []byte) error {
	if json.Unmarshal(b, &s.Kind) == nil {
		return nil
	}
	var object map[string]string
	if err := json.Unmarshal(b, &object); err != nil {
		return fmt.Errorf("signature: %w", err)
	}
	for kind, remote := range object {
		s.Kind, s.Remote = kind, remote
	}
	return nil
}

// bootcOverlay is a layer over /usr, until the next boot or for good.
type bootcOverlay struct {
	AccessMode  string `json:"accessMode"`
	Persistence string `json:"persistence"`
}

// parseBootc reads a status document.
func parseBootc(b []byte) (*BootcHost, error) {
	h := &BootcHost{}
	if err := json.Unmarshal(b, h); err != nil {
		return nil, fmt.Errorf("answer of bootc status: %w", err)
	}
	if h.Kind != "BootcHost" {
		return nil, fmt.Errorf("answer of bootc status: kind %q, not BootcHost", h.Kind)
	}
	return h, nil
}

// Known reports whether the document says anything: all null is "unknown", never
// "not bootc".
func (h *BootcHost) Known() bool { return h.Status.Booted != nil }

// onOSTree reports whether libostree has the deployments.
func (h *BootcHost) onOSTree() bool { return h.Known() && h.Status.Booted.OSTree != nil }

// Manages reports whether bootc moves this host: it was booted from an image, and
// nothing was layered on it.
func (h *BootcHost) Manages() bool {
	return h.Known() && h.Status.Booted.Image != nil && !h.Status.Booted.Incompatible
}
