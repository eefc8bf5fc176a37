package bundledelta

import (
	"bytes"
	"crypto/ed25519"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/refit-dev/refit/internal/pipeline/bundle"
)

const (
	// MaxInventory bounds an inventory in bytes, maxInventoryBundles its bundles and
	// maxInventoryKeys its signatures.
	MaxInventory        = 8 << 20
	maxInventoryBundles = 20
	maxInventoryKeys    = 16
	// inventoryType is the DSSE payload type of an inventory's signatures.
	inventoryType = "application/vnd.refit.inventory.v1+json"
)

// Inventory lists the bundles that a site has, with what is known of their blobs. Neither nodes nor
// images have names in it.
type Inventory struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	// Bundles in the order of their digests.
	Bundles []InventoryBundle `json:"bundles"`
}

// InventoryBundle is a bundle of an inventory.
type InventoryBundle struct {
	// Digest, Name and Version are those of the bundle.
	Digest  string `json:"digest"`
	Name    string `json:"name"`
	Version string `json:"version"`
	// Platforms of its images.
	Platforms []string `json:"platforms"`
	// Blobs are all of its blobs, in their order. Of a cluster they are not known.
	Blobs []InventoryBlob `json:"blobs,omitempty"`
	// Images and Payloads are digests of those that are known to be in it, sorted.
	Images   []InventoryDigest `json:"images,omitempty"`
	Payloads []InventoryDigest `json:"payloads,omitempty"`
}

// InventoryBlob is a blob of a bundle.
type InventoryBlob struct {
	Digest string `json:"digest"`
	Size   int64  `json:"size"`
}

// InventoryDigest is the digest of an image or of a payload.
type InventoryDigest string

// UnmarshalJSON refuses everything else at once, so that a list is no larger than its text.
func (d *InventoryDigest) UnmarshalJSON(b []byte) error {
	var s string
	if err := json.Unmarshal(b, &s); err != nil {
		return err
	}
	if !bundle.ValidDigest(s) {
		return fmt.Errorf("%.80q is no digest", s)
	}
	*d = InventoryDigest(s)
	return nil
}

// UnmarshalJSON refuses a blob without a digest at once, as that of InventoryDigest does.
func (b *InventoryBlob) UnmarshalJSON(text []byte) error {
	type plain InventoryBlob
	if err := json.Unmarshal(text, (*plain)(b)); err != nil {
		return err
	}
	if !bundle.ValidDigest(b.Digest) {
		return fmt.Errorf("blob %.80q is no digest", b.Digest)
	}
	return nil
}

// NewInventory makes an inventory of bundles; two with one digest must be equal.
func NewInventory(bundles []InventoryBundle) (*Inventory, error) {
	v := &Inventory{APIVersion: "refit.dev/inventory/v1", Kind: "Inventory", Bundles: slices.Clone(bundles)}
	slices.SortFunc(v.Bundles, func(a, b InventoryBundle) int { return strings.Compare(a.Digest, b.Digest) })
	v.Bundles = slices.CompactFunc(v.Bundles, func(a, b InventoryBundle) bool { return a.Digest == b.Digest })
	return v, v.check()
}

// InventoryOf is a bundle with all of its blobs.
func InventoryOf(h *bundle.Header) InventoryBundle {
	m := h.Metadata
	b := InventoryBundle{Digest: h.Digest, Name: m.Name, Version: m.Version, Platforms: m.Platforms}
	for _, blob := range m.Blobs {
		b.Blobs = append(b.Blobs, InventoryBlob{blob.Digest, blob.Size})
	}
	return b
}

func (v *Inventory) check() error {
	if n := len(v.Bundles); n == 0 || n > maxInventoryBundles {
		return fmt.Errorf("the inventory has %d bundles, 1 to %d are allowed", n, maxInventoryBundles)
	}
	for i := range v.Bundles {
		b := &v.Bundles[i]
		if i > 0 && v.Bundles[i-1].Digest >= b.Digest {
			return fmt.Errorf("bundle %.80q of the inventory is there twice or not in order", b.Digest)
		}
		if err := b.check(); err != nil {
			return fmt.Errorf("bundle %.80q of the inventory: %w", b.Digest, err)
		}
	}
	return nil
}

// check checks a bundle by the rules of bundles.
func (b *InventoryBundle) check() error {
	if !bundle.ValidDigest(b.Digest) {
		return errors.New("no digest")
	}
	m := bundle.Metadata{FormatVersion: bundle.FormatVersion, MinRefit: "0.0.0", Name: b.Name, Version: b.Version, Platforms: b.Platforms, ChunkSize: bundle.MaxChunkSize}
	for _, blob := range b.Blobs {
		m.Blobs = append(m.Blobs, bundle.Blob{Digest: blob.Digest, Size: blob.Size})
	}
	if err := m.Check(); err != nil {
		return err
	}
	for _, list := range [][]InventoryDigest{b.Images, b.Payloads} {
		for i, d := range list {
			if i > 0 && list[i-1] >= d {
				return fmt.Errorf("%s is there twice or not in order", d)
			}
		}
	}
	return nil
}

// signatures is the second line of an inventory.
type signatures struct {
	Signatures []bundle.Signature `json:"signatures"`
}

// SignedInventory is an inventory as it is in a file: a line with the inventory, and a line with
// its signatures.
type SignedInventory struct {
	*Inventory
	payload    []byte
	signatures []bundle.Signature
}

// Marshal returns the file of an inventory, signed by keys.
func (v *Inventory) Marshal(keys ...ed25519.PrivateKey) ([]byte, error) {
	payload, err := json.Marshal(v)
	if err != nil {
		return nil, err
	}
	s := signatures{Signatures: []bundle.Signature{}}
	for _, k := range keys {
		e, err := bundle.SignPayload(k, inventoryType, payload)
		if err != nil {
			return nil, fmt.Errorf("sign inventory: %w", err)
		}
		s.Signatures = append(s.Signatures, e.Signatures...)
	}
	second, err := json.Marshal(s)
	if err != nil {
		return nil, err
	}
	if n := len(payload) + len(second) + 2; n > MaxInventory {
		return nil, fmt.Errorf("the inventory has %d bytes, at most %d are allowed: name fewer bundles", n, MaxInventory)
	}
	return slices.Concat(payload, []byte("\n"), second, []byte("\n")), nil
}

// ParseInventory reads a file. It accepts only what Marshal makes.
func ParseInventory(b []byte) (*SignedInventory, error) {
	if len(b) > MaxInventory {
		return nil, fmt.Errorf("the inventory has %d bytes, at most %d are allowed", len(b), MaxInventory)
	}
	first, rest, _ := bytes.Cut(b, []byte("\n"))
	var kind struct{ APIVersion, Kind string }
	if err := json.Unmarshal(first, &kind); err != nil || kind.Kind != "Inventory" {
		return nil, errors.New("not an inventory: its first line is not JSON with the kind Inventory. Make it with refit inventory")
	}
	if kind.APIVersion != "refit.dev/inventory/v1" {
		return nil, fmt.Errorf("the inventory has apiVersion %.80q, this refit reads refit.dev/inventory/v1: update refit", kind.APIVersion)
	}
	s := &SignedInventory{Inventory: &Inventory{}, payload: first}
	if err := json.Unmarshal(first, s.Inventory); err != nil {
		return nil, &DamagedInventoryError{err}
	}
	if err := s.check(); err != nil {
		return nil, &DamagedInventoryError{err}
	}
	if err := s.parseSignatures(rest); err != nil {
		return nil, &DamagedInventoryError{err}
	}
	if again, err := json.Marshal(s.Inventory); err != nil || !bytes.Equal(again, first) {
		return nil, &DamagedInventoryError{errors.New("it has another form than refit writes")}
	}
	return s, nil
}

func (s *SignedInventory) parseSignatures(line []byte) error {
	var found signatures
	if err := json.Unmarshal(line, &found); err != nil {
		return fmt.Errorf("line with signatures: %w", err)
	}
	if len(found.Signatures) > maxInventoryKeys {
		return fmt.Errorf("%d signatures, at most %d are allowed", len(found.Signatures), maxInventoryKeys)
	}
	for _, sig := range found.Signatures {
		if !bundle.ValidKeyID(sig.KeyID) {
			return errors.New("a signature without the identifier of its key")
		}
	}
	if again, err := json.Marshal(found); err != nil || !bytes.Equal(append(again, '\n'), line) {
		return errors.New("its signatures have another form than refit writes, or bytes follow them")
	}
	s.signatures = found.Signatures
	return nil
}

// DamagedInventoryError says that an inventory is not what was written.
type DamagedInventoryError struct{ Err error }

func (e *DamagedInventoryError) Error() string {
	return fmt.Sprintf("the inventory is damaged: %v. Copy it again, or make it again with refit inventory", e.Err)
}

func (e *DamagedInventoryError) Unwrap() error { return e.Err }

// KeyIDs are the identifiers of the keys that the signatures name. They are not verified.
func (s *SignedInventory) KeyIDs() []string {
	var ids []string
	for _, sig := range s.signatures {
		ids = append(ids, sig.KeyID)
	}
	return ids
}

// SignedBy lists the names of the keys with a valid signature over the inventory, sorted.
func (s *SignedInventory) SignedBy(keys map[string]ed25519.PublicKey) []string {
	return bundle.Envelope{PayloadType: inventoryType, Payload: s.payload, Signatures: s.signatures}.SignedBy(keys)
}
