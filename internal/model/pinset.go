package model

// PinSetVersion is the format of a PinSet. A member that older agents must not ignore is
// another version.
const PinSetVersion = "refit.dev/hold/v1"

// ContentFormats are the formats of Contents, and of parameters of steps, that an agent of this
// version reads.
func ContentFormats() []string {
	return []string{ConfigVersion, ConfigVersionAsImage, PinSetVersion, PlanVersion, UndoDeadlineVersion, HopsVersion}
}

// PinSet has the images and payloads that a node holds and pins. It is the data of a
// Content of type "hold".
type PinSet struct {
	Images   []PinSetImage   `json:"images"`
	Payloads []PinSetPayload `json:"payloads,omitempty"`
	// Optional are paths of members that agents which do not know them ignore.
	Optional []string `json:"optional,omitempty"`
}

// CountImages are how many images the list wants of bundles, and how many a node may
// fetch from registries. They are counted apart: what an update needs comes in
// bundles, and no update waits for a registry.
func (l *PinSet) CountImages() (bundled, fetched int) {
	for _, i := range l.Images {
		if i.Registry {
			fetched++
		}
	}
	return len(l.Images) - fetched, fetched
}

// PinSetImage is one image name to hold and pin.
type PinSetImage struct {
	// Name with tag, as pods say it.
	Name string `json:"name"`
	// Digest of the manifest or index.
	Digest string `json:"digest"`
	// Bundle the image comes from, by digest.
	Bundle string `json:"bundle"`
	// Registry: the node's runtime may fetch it from the registry in its name.
	Registry bool `json:"registry,omitempty"`
	// Kubelet: only the kubelet may, because it has credentials for it.
	Kubelet bool `json:"kubelet,omitempty"`
	// NoCopy: its blobs need not stay in addition to the runtime's store once it is
	// pinned.
	NoCopy bool `json:"noCopy,omitempty"`
	// Size that is fetched from a registry, in bytes; 0 if unknown.
	Size int64 `json:"size,omitempty"`
	// Base and Overlay describe an image that was assembled on the site: the digest of the
	// bundle's image below it, and the Content with the ImageOverlay on top.
	Base    string `json:"base,omitempty"`
	Overlay string `json:"made,omitempty"`
}

// PinSetPayload is one file of a bundle that a node keeps for its updaters.
type PinSetPayload struct {
	// Name, for example "kubelet".
	Name string `json:"name"`
	// Digest of the file.
	Digest string `json:"digest"`
	// Bundle the payload comes from, by digest.
	Bundle string `json:"bundle"`
}

// Trust is the data of a Content of type "trust".
type Trust struct {
	// Policies: a bundle that satisfies one of them may be loaded.
	Policies []TrustRule `json:"policies"`
	// RequireSignatures: an approved digest alone is not enough, the bundle must
	// satisfy one of the policies too.
	RequireSignatures bool `json:"requireSignatures,omitempty"`
	// RevokedDigests may not be loaded, even if a policy or an approval allows it.
	RevokedDigests []string `json:"revokedDigests,omitempty"`
	// Optional are paths of members that agents which do not know them ignore.
	Optional []string `json:"optional,omitempty"`
}

// TrustRule is one TrustPolicy.
type TrustRule struct {
	Name string `json:"name"`
	// Keys by name, PEM.
	Keys      map[string]string `json:"keys"`
	Threshold int               `json:"threshold"`
}
