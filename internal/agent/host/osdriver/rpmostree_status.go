package osdriver

import (
	"encoding/json"
	"fmt"
	"strings"
)

// rpmDocument is the answer of `rpm-ostree status --json`. Only what is read is here.
type rpmDocument struct {
	// Deployments in the order in which they boot: the first one is next.
	Deployments []rpmDeployment `json:"deployments"`
	// Transaction is what the daemon is doing, null if nothing.
	Transaction []string `json:"transaction"`
	// UpdateDriver is a program that has registered as the one that updates this host: others
	// have to bypass it. nil without one.
	UpdateDriver *struct {
		Name string `json:"driver-name"`
		Unit string `json:"driver-sd-unit"`
	} `json:"update-driver"`
}

// rpmDeployment is one of them. Keys that are not there are empty.
type rpmDeployment struct {
	ID       string `json:"id"`
	OSName   string `json:"osname"`
	Serial   int    `json:"serial"`
	Checksum string `json:"checksum"`
	Version  string `json:"version"`
	Booted   bool   `json:"booted"`
	Staged   bool   `json:"staged"`
	Pinned   bool   `json:"pinned"`
	// Unlocked is none, development, hotfix or transient.
	Unlocked           string `json:"unlocked"`
	FinalizationLocked bool   `json:"finalization-locked"`
	LiveReplaced       string `json:"live-replaced"`
	Image              string `json:"container-image-reference"`
	ImageDigest        string `json:"container-image-reference-digest"`
	// What was changed on the node.
	RequestedPackages              []string          `json:"requested-packages"`
	RequestedLocalPackages         []string          `json:"requested-local-packages"`
	RequestedBaseRemovals          []string          `json:"requested-base-removals"`
	RequestedBaseLocalReplacements []json.RawMessage `json:"requested-base-local-replacements"`
	RegenerateInitramfs            bool              `json:"regenerate-initramfs"`
	// Versions write the first of these in different forms.
	RequestedBaseRemoteReplacements    json.RawMessage `json:"requested-base-remote-replacements"`
	RequestedLocalFileoverridePackages []string        `json:"requested-local-fileoverride-packages"`
	InitramfsEtc                       []string        `json:"initramfs-etc"`
	// LiveInProgress is a commit that is being applied to the running system.
	LiveInProgress string `json:"live-inprogress"`
}

// parseRPMOstree reads a status document.
func parseRPMOstree(b []byte) (*rpmDocument, error) {
	d := &rpmDocument{}
	if err := json.Unmarshal(b, d); err != nil {
		return nil, fmt.Errorf("answer of rpm-ostree status: %w", err)
	}
	return d, nil
}

// layered says what was changed on the node, empty if nothing.
func (d *rpmDeployment) layered() string {
	var out []string
	for what, n := range map[string]int{"packages added": len(d.RequestedPackages) + len(d.RequestedLocalPackages) + len(d.RequestedLocalFileoverridePackages),
		"packages removed": len(d.RequestedBaseRemovals), "packages replaced": len(d.RequestedBaseLocalReplacements)} {
		if n > 0 {
			out = append(out, fmt.Sprintf("%s: %d", what, n))
		}
	}
	switch string(d.RequestedBaseRemoteReplacements) {
	case "", "null", "[]", "{}":
	default:
		out = append(out, "packages replaced from repositories")
	}
	if d.RegenerateInitramfs || len(d.InitramfsEtc) > 0 {
		out = append(out, "an initramfs of its own")
	}
	return strings.Join(sorted(out), ", ")
}

// withoutNumber is a reference without the words for how it is verified and where it is.
func withoutNumber(ref string) string {
	for _, scheme := range []string{"ostree-unverified-registry:", "ostree-unverified-image:", "ostree-image-signed:"} {
		ref = strings.TrimPrefix(ref, scheme)
	}
	if after, ok := strings.CutPrefix(ref, "ostree-remote-image:"); ok {
		_, ref, _ = strings.Cut(after, ":")
	}
	for _, transport := range []string{"docker://", "registry:", "oci:", "containers-storage:"} {
		ref = strings.TrimPrefix(ref, transport)
	}
	return ref
}

// status is the document in our words.
func (d *rpmDocument) status() Status {
	s := Status{Driver: RPMOSTree, Busy: strings.Join(d.Transaction, " ")}
	for i := range d.Deployments {
		one := &d.Deployments[i]
		out := &Deployment{ID: fmt.Sprintf("%s.%d", one.Checksum, one.Serial), Image: withoutNumber(one.Image), Digest: one.ImageDigest, Version: one.Version,
			Pinned: one.Pinned, Locked: one.FinalizationLocked, Incompatible: one.layered() != ""}
		switch {
		case one.Booted:
			s.Booted = out
		case one.Staged:
			s.Staged = out
		case s.Rollback == nil:
			s.Rollback = out
		}
		if i == 0 {
			s.Next = out
			s.RollbackQueued = !one.Booted && !one.Staged
		}
		s.Drift = append(s.Drift, one.drift()...)
	}
	if u := d.UpdateDriver; u != nil {
		s.Drift = append(s.Drift, Drift{Kind: DriftSelfUpdates, Detail: u.Name + " (" + u.Unit + ") is registered as the program that updates this host: refit bypasses it, and while it runs it may boot another OS"})
	}
	return s
}

func (d *rpmDeployment) drift() []Drift {
	var out []Drift
	if !d.Booted && !d.Staged {
		return nil
	}
	which := "booted"
	if d.Staged {
		which = "staged"
	}
	if d.Unlocked != "" && d.Unlocked != "none" {
		out = append(out, Drift{Kind: DriftOverlay, Detail: "/usr of the " + which + " deployment was unlocked on the node (" + d.Unlocked + ")"})
	}
	if d.LiveReplaced != "" || d.LiveInProgress != "" {
		out = append(out, Drift{Kind: DriftOverlay, Detail: "packages were applied live over the " + which + " deployment"})
	}
	if l := d.layered(); l != "" {
		out = append(out, Drift{Kind: DriftPackages, Detail: "the " + which + " deployment was changed on the node: " + l})
	}
	if d.ImageDigest == "" {
		out = append(out, Drift{Kind: DriftForeign, Detail: "the " + which + " deployment is not from a container image"})
	}
	return out
}
